"""Only here: `pulumi policy publish` of the pack to a stub of Pulumi Cloud, and what was sent, where it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import analyzer_pb2 as proto
from pulumi.runtime.proto.analyzer_pb2_grpc import AnalyzerStub

from emulator.tests.harness import RUN
from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.ops.repository import template
from gke_ai.review.policy.rules import POLICIES
from tests.support.local_server import listening
from tests.support.repository import ROOT, copy_to

OPEN, PROTECTED = "buckets-are-private", "clusters-and-buckets-are-protected"
BUCKET = {"name": "models", "location": "US", "publicAccessPrevention": "enforced"}


@dataclass
class Cloud:
    """What a stub of Pulumi Cloud was sent."""

    described: dict[str, Any] = field(default_factory=dict)
    archive: bytes = b""
    completed: list[str] = field(default_factory=list)


def handler(cloud: Cloud) -> type[BaseHTTPRequestHandler]:
    """Answers the CLI: pkg/backend/httpstate/client/client.go of Pulumi."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer: dict[str, Any] = {}
            if self.path == "/api/user":
                answer = {"githubLogin": "tester", "name": "tester", "organizations": []}
            elif self.command == "POST" and self.path.endswith("/policypacks"):
                cloud.described = json.loads(content)
                answer = {"version": 1, "uploadURI": f"http://{self.headers['Host']}/upload"}
            elif self.path == "/upload":
                cloud.archive = content
            elif self.path.endswith("/complete"):
                cloud.completed.append(self.path)
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = _serve

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler


def without_checkout(*path: Path) -> dict[str, str]:
    """The environment of a program that imports from these folders, and not from the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, path))}


@dataclass(frozen=True)
class Published:
    """A pack that was published, where Pulumi unpacked it, and the packages that its requirements install."""

    cloud: Cloud
    folder: Path
    packages: Path


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The pack of a repository of `init`, with the wheel beside it, as docs/policies.md publishes it."""
    folder = tmp_path_factory.mktemp("published")
    pip, quiet = [sys.executable, "-P", "-m", "pip"], ["--quiet", "--no-deps", "--no-index"]
    pack, wheel = folder / "policy", f"gke_ai-{PROJECT_VERSION}-py3-none-any.whl"
    for name, text in template.files(["dev"]).items():
        if name.startswith("policy/"):
            pack.mkdir(exist_ok=True)
            (folder / name).write_text(text)
    source = str(copy_to(folder / "source"))
    build = [*pip, "wheel", *quiet, "--no-build-isolation", "--wheel-dir", str(pack), source]
    subprocess.run(build, env=without_checkout(), check=True)
    (pack / "requirements.txt").write_text(f"./{wheel}\n")
    packages, cloud = folder / "packages", Cloud()
    install = [*pip, "install", *quiet, "--target", str(packages), str(pack / wheel)]
    subprocess.run(install, env=without_checkout(), check=True)
    with listening(handler(cloud)) as address:
        login = [f"PULUMI_BACKEND_URL=http://{address}", "PULUMI_ACCESS_TOKEN=pul-test", f"PYTHONPATH={packages}"]
        publish = [RUN, "env", *login, "pulumi", "policy", "publish", "my-organization", "--non-interactive"]
        environment = without_checkout() | {"GKE_AI_STATE": str(folder / "state")}
        done = subprocess.run(publish, cwd=pack, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    archive = folder / "sent.tgz"
    archive.write_bytes(cloud.archive)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "sent", filter="data")
    return Published(cloud, folder / "sent" / "package", packages)


@pytest.fixture
def analyzer(published: Published) -> Iterator[Any]:
    """The pack that runs where it was unpacked, with the packages of its requirements and no checkout beside it."""
    command = [sys.executable, "-P", str(published.folder / "__main__.py")]
    environment = without_checkout(published.packages)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            yield AnalyzerStub(channel)
        process.terminate()


def levels(analyzer: Any) -> dict[str, Any]:
    """The level of each policy, as the engine asks for it."""
    return {policy.name: policy.enforcementLevel for policy in analyzer.GetAnalyzerInfo(Empty()).policies}


def found(analyzer: Any) -> dict[str, Any]:
    """The level of each violation of a bucket."""
    bucket = proto.AnalyzeRequest(urn="urn:models", type="gcp:storage/bucket:Bucket", name="models")
    bucket.properties.update(BUCKET)
    return {sent.policyName: sent.enforcementLevel for sent in analyzer.Analyze(bucket).diagnostics}


def test_the_pack_is_sent_whole_with_its_version_and_policies(published: Published) -> None:
    sent = published.cloud.described
    assert (sent["name"], sent["versionTag"], sent["runtime"]) == ("gke-ai", PROJECT_VERSION, "python")
    assert {policy["name"] for policy in sent["policies"]} >= {policy.name for policy in POLICIES}
    names = sorted(file.name for file in published.folder.iterdir())
    wheel = f"gke_ai-{PROJECT_VERSION}-py3-none-any.whl"
    assert names == ["PulumiPolicy.yaml", "__main__.py", wheel, "requirements.txt"]
    (completed,) = published.cloud.completed
    assert completed == f"/api/orgs/my-organization/policypacks/gke-ai/versions/{PROJECT_VERSION}/complete"
    assert str(ROOT) not in (published.folder / "__main__.py").read_text()


def test_the_configuration_of_a_stack_sets_the_levels_of_a_published_pack(analyzer: Any) -> None:
    assert levels(analyzer)[PROTECTED] == proto.DISABLED
    assert found(analyzer) == {OPEN: proto.ADVISORY}
    mandatory = proto.AnalyzerStackConfigureRequest(project="sample", config={"sample:policies": "mandatory"})
    analyzer.ConfigureStack(mandatory)
    assert set(levels(analyzer).values()) == {proto.MANDATORY, proto.ADVISORY}  # the latter: `waived`
    assert found(analyzer) == {OPEN: proto.MANDATORY, PROTECTED: proto.MANDATORY}


def test_a_policy_group_sets_levels_in_their_place(analyzer: Any) -> None:
    stated = {OPEN: proto.PolicyConfig(enforcementLevel=proto.DISABLED)}
    stated[PROTECTED] = proto.PolicyConfig(enforcementLevel=proto.MANDATORY)
    analyzer.Configure(proto.ConfigureAnalyzerRequest(policyConfig=stated))
    assert found(analyzer) == {PROTECTED: proto.MANDATORY}
