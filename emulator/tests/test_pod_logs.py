"""Logs of local processes: the lines that a request selects, and those of pods that are gone."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from emulator.cloud import control_plane
from emulator.cloud.folder import Folder
from emulator.commands import logs
from emulator.machine import paths
from emulator.pods import logs as pod_logs
from emulator.pods.logs import Line, file_of, read, record, selected

LINES = [Line(f"2025-11-22T10:00:0{second}.000000Z", f"{second}".encode()) for second in range(4)]


def texts(lines: list[Line]) -> list[str]:
    return [line.text.decode() for line in lines]


def written(file: Path, output: bytes) -> None:
    async def write() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(output)
        reader.feed_eof()
        await record(reader, file, lambda line: line.replace(b"/local", b"/data"))

    asyncio.run(write())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["0", "1", "2", "3"]),
        ({"tailLines": "2"}, ["2", "3"]),
        ({"tailLines": "0"}, []),
        ({"tailLines": "9"}, ["0", "1", "2", "3"]),
        ({"sinceTime": "2025-11-22T11:00:02+01:00"}, ["2", "3"]),
        ({"sinceTime": "2025-11-22T10:00:01Z", "tailLines": "1"}, ["3"]),
        ({"sinceSeconds": "1"}, []),
    ],
)
def test_a_request_selects_lines_by_time_and_number(options: dict[str, str], expected: list[str]) -> None:
    assert texts(selected(LINES, options)) == expected


def test_output_becomes_lines_with_times(tmp_path: Path) -> None:
    written(tmp_path / "c" / "0.log", b"saved /local/1\n10 %\r50 %\r100 %\nno end of line")
    lines, _ = read(tmp_path / "c" / "0.log")
    assert texts(lines) == ["saved /data/1", "10 %\r50 %\r100 %", "no end of line"]
    assert lines[0].time <= lines[1].time


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"2025-11-22T10:00:00.000000Z stdout F whole\n2025-11-22T10")
    lines, offset = read(tmp_path / "0.log")
    assert lines == [Line("2025-11-22T10:00:00.000000Z", b"whole")]
    (tmp_path / "kueue.log").write_bytes(b"starting manager\n")
    assert read(tmp_path / "kueue.log")[0] == [Line("", b"starting manager")], "that of a controller has no times"
    with (tmp_path / "0.log").open("ab") as file:
        file.write(b":00:01.000000Z stdout F next\n")
    assert texts(read(tmp_path / "0.log", offset)[0]) == ["next"]


def test_logs_outlive_their_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder("c")
    for uid, name, output in (("u1", "run-0-a", b"one"), ("u2", "run-0-b", b"two"), ("u3", "other", b"three")):
        pod = {"metadata": {"namespace": "llm", "name": name, "uid": uid}}
        written(file_of(folder, pod, "main", 0), output)
    found = [(pod, line.text) for pod, line in pod_logs.of_pods(folder, "llm", "run")]
    assert found == [("run-0-a", b"one"), ("run-0-b", b"two")]
    assert logs.main(["run-0-b", "-n", "llm", "--cluster", "c"]) == 0
    assert capsys.readouterr().out.split(" ", 1)[1] == "run-0-b two\n"
    assert logs.main(["run", "--cluster", "c"]) == 0
    assert "No pod run… of namespace default has written a log" in capsys.readouterr().err


def certificate(folder: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None) -> Any:
    """Writes a certificate and its key. Returns both."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[0].subject if issuer else subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = builder.add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True).sign(
        issuer[1] if issuer else key, hashes.SHA256()
    )
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return signed, key


async def asked(port: int, shown: Path | None) -> bytes:
    """What the server answers a client that shows a certificate, or none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown:
        context.load_cert_chain(shown, shown.with_suffix(".key"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET /containerLogs/llm/run/main HTTP/1.1\r\n\r\n")
        return await reader.read()
    except OSError:  # the server refuses the connection
        return b""
    finally:
        writer.close()


def test_only_the_api_server_reads_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder("c")
    folder.pki.mkdir(parents=True)
    authority = certificate(folder.pki, "ca", None)
    certificate(folder.pki, "admin", authority)
    certificate(tmp_path, "stranger", certificate(tmp_path, "other", None))
    pki = folder.pki
    options = yaml.safe_dump(control_plane.configuration([1, 2, 3, 4], tmp_path, tmp_path, pki))
    arguments = {part["key"]: part["value"] for part in yaml.safe_load(options)["componentsPatches"][0]["extraArgs"]}
    assert arguments["kubelet-client-certificate"] == str(pki / "admin.crt")
    assert arguments["kubelet-client-key"] == str(pki / "admin.key")
    (folder.control_plane / "kwok.yaml").write_text(f"- --kubelet-client-certificate={pki}/admin.crt\n")

    async def serve() -> bytes:
        server = pod_logs.LogServer(folder, lambda *_: None, ())
        await server.start()
        assert server.port
        for shown in (None, tmp_path / "stranger.crt"):
            assert await asked(server.port, shown) == b""
        return await asked(server.port, pki / "admin.crt")

    assert asyncio.run(serve()).startswith(b"HTTP/1.1 404 Not Found")
