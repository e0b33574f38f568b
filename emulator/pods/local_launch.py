"""What starts the local process of a container: its command and environment, with folders for its volumes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from emulator.cloud.api import answer, files_of
from emulator.cloud.folder import Folder
from emulator.cloud.program import LocalProgram
from emulator.cloud.store import BUCKET_IAM_MEMBER, Store, project_number
from emulator.machine import processes
from emulator.machine.folders import folder_name, inside
from emulator.pods import ledger, model_cache, trusted
from emulator.pods.local_spec import Names, NotStarted, Paths, bucket_of, expand, sources, variables
from emulator.pods.rendezvous import Member
from gke_ai.catalog.project.identities import principal

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
        """What starts a container of an image that the user named. Raises NotStarted."""
        more = trusted.arguments(spec, program)
        trusted.check_folder(spec, program)
        environment = await self._variables(spec)
        trusted.check_variables(environment, program)
        more = [expand(word, environment) for word in more]
        code, paths = await self._mounted(spec, program, environment)
        environment = {name: value for name, value in environment.items() if name not in program.env}
        trusted.check_paths([*more, *environment.values()], paths)
        names = Names(self._pod["spec"].get("subdomain", ""), self._pod["metadata"]["namespace"], self._member.port)
        environment = {name: paths.local(value) for name, value in names.variables(environment).items()}
        trusted.check_addresses(environment)
        if not Path(program.folder).is_dir():
            raise NotStarted("CreateContainerError", f"the working directory {program.folder} doesn't exist")
        first, *others = program.words
        for word in others:
            if code.local(word) != paths.local(word):
                raise NotStarted(
                    trusted.CONFIG_ERROR, f"{word} of your command is in a volume whose files come from the cluster"
                )
        return Launch(
            [
                Paths({program.at: Path(program.folder)}).local(first),
                *(code.local(names.local(word)) for word in others),
                *(paths.local(names.local(word)) for word in more),
            ],
            self._base(program.python) | environment | program.env,
            program.folder,
            paths,
        )

    async def fill(self, spec: Object, hub: str) -> Launch:
        """What starts the container of a Job that fills a bucket with a model: the program of this checkout."""
        environment = await self._variables(spec)
        _, paths = await self._mounted(spec, None, environment)
        directory = model_cache.directory(spec, environment, paths)
        return Launch(
            model_cache.COMMAND,
            self._base(sys.prefix)
            | {name: environment[name] for name in model_cache.VARIABLES if name in environment}
            | {"MODEL_DIRECTORY": str(directory), "HF_ENDPOINT": hub},
            str(self._private),
            paths,
        )

    async def keep_ledger(self, spec: Object) -> Launch:
        """What starts a run of the ledger: the program of this checkout, as the service account of its pod."""
        _, paths = await self._mounted(spec, None, {})
        folder, ca = self._private / "serviceaccount", self._folder.pki / "ca.crt"
        own = await ledger.environment(self._api, self._pod, self._folder.host, ca, folder, paths)
        return Launch(ledger.COMMAND, self._base(sys.prefix) | own, str(self._private), paths)

    async def _variables(self, spec: Object) -> dict[str, str]:
        """The container's variables."""
        values = {}
        for collection, name, required in dict.fromkeys(sources(spec)):
            content = await self._read(collection, name, required)
            values[collection, name] = {key: value.decode(errors="replace") for key, value in content.items()}
        return variables(spec, self._pod, values)

    def _base(self, python: str) -> dict[str, str]:
        """The environment before the container's own."""
        home = self._private / "home"
        home.mkdir(parents=True, exist_ok=True)
        return processes.environment(
            self._folder.path,
            PATH=os.pathsep.join([str(Path(python) / "bin"), SYSTEM_PATH]),
            HOME=str(home),
            TMPDIR=str(self._private / "tmp"),
            HOSTNAME=self._member.name[2],
        )

    async def _mounted(
        self, spec: Object, program: LocalProgram | None, environment: Mapping[str, str]
    ) -> tuple[Paths, Paths]:
        """The folders of a container's mounts, which exist: those that may have code, and all of them."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        code, paths = Paths(), Paths()
        (self._private / "tmp").mkdir(parents=True, exist_ok=True)
        for known in (code, paths):
            known.add("/tmp", self._private / "tmp")
            if program:
                known.add(program.at, Path(program.folder))
        for mount in spec.get("volumeMounts", []):
            if mount["mountPath"] == SERVICE_ACCOUNT_FOLDER:
                continue  # for clients of the API server, which have no credentials here
            volume, sub_path = volumes[mount["name"]], mount.get("subPathExpr") or mount.get("subPath", "")
            target = inside(
                await self._volume(volume), trusted.check_subfolder(expand(sub_path, environment), mount["name"])
            )
            if not target.exists():
                target.mkdir(parents=True, exist_ok=True)
            paths.add(mount["mountPath"], target)
            beside = program is None or not mount["mountPath"].startswith(f"{program.at.rstrip('/')}/")
            if beside and not volume.keys() & {"configMap", "secret"}:
                code.add(mount["mountPath"], target)
        return code, paths

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
        return inside(folder, trusted.check_subfolder(only_folder, bucket))

    async def _read(self, collection: str, name: str, required: bool) -> dict[str, bytes]:
        """The content of a ConfigMap or a Secret."""
        namespace = self._pod["metadata"]["namespace"]
        response = await self._api.get(f"/api/v1/namespaces/{namespace}/{collection}/{name}")
        if response.status_code == 404:
            if required:
                raise NotStarted("CreateContainerConfigError", f'{collection.removesuffix("s")} "{name}" not found')
            return {}
        return files_of(collection, answer(response))
