"""What starts the local process of a container: its command and environment, with folders for its volumes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from catalog.workload_identity import principal
from emulator.cluster import processes
from emulator.cluster.api import answer, files_of
from emulator.cluster.folder import Folder
from emulator.cluster.local_spec import Names, NotStarted, Paths, bucket_of, expand, sources, variables
from emulator.cluster.rendezvous import Member
from emulator.folders import folder_name, inside
from emulator.gcp_plugin.storage import BUCKET_IAM_MEMBER
from emulator.gcp_plugin.store import Store, project_number
from emulator.program import LocalProgram

Object = dict[str, Any]

# PATH of most images, after the programs of the Python environment.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class Launch:
    """What starts a container's process."""

    command: list[str]
    environment: dict[str, str]
    working_directory: str
    paths: Paths


class Launcher:
    """Prepares the containers of one pod.

    Args:
        folder: Folder of the cluster.
        api: Client of the cluster.
        store: The cloud's resources, with the buckets.
        pod: The pod.
        member: The pod's place among the others.
        private: The pod's private folder.
    """

    def __init__(
        self, folder: Folder, api: httpx.AsyncClient, store: Store, pod: Object, member: Member, private: Path
    ) -> None:
        self._folder = folder
        self._api = api
        self._store = store
        self._pod = pod
        self._member = member
        self._private = private

    async def launch(self, spec: Object, program: LocalProgram) -> Launch:
        """What starts a container. Raises NotStarted."""
        values = {}
        for collection, name, required in dict.fromkeys(sources(spec)):
            content = await self._read(collection, name, required)
            values[collection, name] = {key: value.decode(errors="replace") for key, value in content.items()}
        environment = variables(spec, self._pod, values)
        words = [*spec.get("command", program.command), *spec.get("args", [])]
        if not words:
            raise NotStarted("CreateContainerError", "no command specified. Add one to the image: emulator/run program")
        words = [expand(word, environment) for word in words]
        paths = await self._mounted(spec, program, environment)
        names = Names(self._pod["spec"].get("subdomain", ""), self._pod["metadata"]["namespace"], self._member.port)
        environment = {name: paths.local(value) for name, value in names.variables(environment).items()}
        working_directory = paths.local(spec.get("workingDir", "")) or program.folder
        if not Path(working_directory).is_dir():
            shown = spec.get("workingDir") or program.folder
            raise NotStarted("CreateContainerError", f"the working directory {shown} doesn't exist")
        return Launch(
            [paths.local(names.local(word)) for word in words],
            self._base(program) | environment | program.env,
            working_directory,
            paths,
        )

    def _base(self, program: LocalProgram) -> dict[str, str]:
        """The environment before the container's own."""
        home = self._private / "home"
        home.mkdir(parents=True, exist_ok=True)
        return processes.environment(
            self._folder.path,
            PATH=os.pathsep.join([str(Path(program.python) / "bin"), SYSTEM_PATH]),
            HOME=str(home),
            TMPDIR=str(self._private / "tmp"),
            HOSTNAME=self._member.name[2],
        )

    async def _mounted(self, spec: Object, program: LocalProgram, environment: Mapping[str, str]) -> Paths:
        """The folders of a container's mounts, which exist."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        paths = Paths()
        paths.add("/tmp", self._private / "tmp")
        (self._private / "tmp").mkdir(parents=True, exist_ok=True)
        paths.add(program.at, Path(program.folder))
        for mount in spec.get("volumeMounts", []):
            if mount["mountPath"] == SERVICE_ACCOUNT_FOLDER:
                continue  # for clients of the API server, which have no credentials here
            folder = await self._volume(volumes[mount["name"]])
            target = inside(folder, expand(mount.get("subPathExpr") or mount.get("subPath", ""), environment))
            if not target.exists():
                target.mkdir(parents=True, exist_ok=True)
            paths.add(mount["mountPath"], target)
        return paths

    async def _volume(self, volume: Object) -> Path:
        if bucket := bucket_of(volume, self._pod):
            return self._bucket(*bucket)
        folder = self._private / "volumes" / folder_name(volume["name"])
        folder.mkdir(parents=True, exist_ok=True)
        for collection, kind, key in (("configmaps", "configMap", "name"), ("secrets", "secret", "secretName")):
            if kind in volume:
                source = volume[kind]
                files = await self._read(collection, source[key], not source.get("optional"))
                items = source.get("items") or [{"key": name, "path": name} for name in files]
                for item in items:
                    if item["key"] not in files:
                        if source.get("optional"):
                            continue
                        text = f"references non-existent config key: {item['key']}"
                        raise NotStarted("CreateContainerConfigError", text)
                    file = inside(folder, item["path"])
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.touch(mode=0o600)
                    file.write_bytes(files[item["key"]])
                return folder
        if "emptyDir" not in volume:
            kind = next((key for key in volume if key != "name"), "of no kind")
            raise NotStarted("FailedMount", f"the emulator has no files for the volume {volume['name']} ({kind})")
        return folder

    def _bucket(self, bucket: str, only_folder: str) -> Path:
        """The folder of a bucket, on which the pod's service account needs a role."""
        project, namespace = self._folder.record.project, self._pod["metadata"]["namespace"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        member = principal(project_number(project), project, namespace, account)
        try:
            folder = self._store.bucket_folder(bucket)
        except FileNotFoundError:
            raise NotStarted("FailedMount", f"the bucket {bucket} doesn't exist") from None
        grants = self._store.all(BUCKET_IAM_MEMBER, under=f"b/{bucket}/")
        if not any(grant.inputs["member"] == member for grant in grants):
            text = f"the service account {namespace}/{account} has no role on the bucket {bucket}"
            raise NotStarted("FailedMount", text)
        return inside(folder, only_folder)

    async def _read(self, collection: str, name: str, required: bool) -> dict[str, bytes]:
        """The content of a ConfigMap or a Secret."""
        namespace = self._pod["metadata"]["namespace"]
        response = await self._api.get(f"/api/v1/namespaces/{namespace}/{collection}/{name}")
        if response.status_code == 404:
            if required:
                raise NotStarted("CreateContainerConfigError", f'{collection.removesuffix("s")} "{name}" not found')
            return {}
        return files_of(collection, answer(response))
