"""Prints what local processes wrote to the logs of their pods, also of deleted pods, as Cloud Logging keeps them.

    emulator/run logs NAME [-n NAMESPACE] [--cluster CLUSTER]

NAME is the beginning of the pods' names. The lines of several pods are in the order of their times.
"""

from __future__ import annotations

import argparse
import sys

from emulator.cloud.folder import Folder, names
from emulator.pods.logs import of_pods


def main(arguments: list[str]) -> int:
    """Prints the lines, each with its time and its pod."""
    parser = argparse.ArgumentParser(
        prog="emulator/run logs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("--cluster", help="default: all clusters")
    options = parser.parse_args(arguments)
    printed = False
    for cluster in [options.cluster] if options.cluster else names():
        for pod, line in of_pods(Folder(cluster), options.namespace, options.name):
            print(line.time, pod, line.text.decode(errors="replace"))
            printed = True
    if not printed:
        print(
            f"No pod {options.name}… of namespace {options.namespace} has written a log. "
            "Only local processes write logs: `emulator/run program` lists their images.",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
