"""Pauses and resumes a cluster of the emulated cloud, and replaces its objects while it is paused.

    emulator/run cluster list              names of the clusters
    emulator/run cluster pause [NAME]      ends every controller; etcd and the API server stay
    emulator/run cluster load [NAME]       writes objects exactly as they are: uid, status and times
    emulator/run cluster pools [NAME]      replaces the records of its node pools, and leaves its nodes as they are
    emulator/run cluster resume [NAME]     starts the controllers, which list all objects again
    emulator/run cluster stop [NAME]       ends every process; `emulator/run ready` starts them again

`load` reads JSON from standard input, {"put": [OBJECT, …], "delete": [OBJECT, …]}. An object to delete needs only its
apiVersion, kind, namespace and name. It is deleted at once, without its finalizers and the objects that it owns. NAME
can be omitted if there is one cluster. `pools` reads a JSON list with the fields of `PoolRecord`.
"""

from __future__ import annotations

import argparse
import json
import sys

from emulator.cloud import etcd
from emulator.cloud.api import Refused
from emulator.cluster import ClusterFailed, NoSuchCluster, PoolRecord, names, paused


def main(arguments: list[str]) -> int:
    """Runs one command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("list", "pause", "load", "pools", "resume", "stop"))
    parser.add_argument("name", nargs="?", help="name of the cluster")
    options = parser.parse_args(arguments)
    known = names()
    if options.command == "list":
        print(*known, sep="\n")
        return 0
    if options.name is None and len(known) != 1:
        print(f"Name the cluster: {', '.join(known) or 'there is none, deploy one with `make up`'}", file=sys.stderr)
        return 2
    name = options.name or known[0]
    try:
        if options.command == "load":
            content = json.load(sys.stdin)
            paused.load(name, content.get("put", []), content.get("delete", []))
        elif options.command == "pools":
            paused.set_pools(name, [PoolRecord(**pool) for pool in json.load(sys.stdin)])
        else:
            {"pause": paused.pause, "resume": paused.resume, "stop": paused.stop}[options.command](name)
    except (ClusterFailed, NoSuchCluster, Refused, paused.CannotLoad, etcd.Failed) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
