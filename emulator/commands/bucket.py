"""Puts objects into a bucket of the emulated cloud, as a workload would, lists them, and deletes a bucket.

emulator/run bucket put BUCKET OBJECT [FILE]   an empty object, or the content of FILE
emulator/run bucket ls BUCKET
emulator/run bucket rm BUCKET                  with its objects, as `gcloud storage rm --recursive` does
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from emulator.cloud.store import Store
from emulator.google.clusters import LocalClusters
from emulator.google.resource import Cloud
from emulator.google.storage import BUCKET, Bucket


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run bucket", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    put = commands.add_parser("put", help="put an object into a bucket")
    put.add_argument("bucket")
    put.add_argument("object")
    put.add_argument("file", nargs="?", type=Path)
    ls = commands.add_parser("ls", help="list the objects of a bucket")
    ls.add_argument("bucket")
    rm = commands.add_parser("rm", help="delete a bucket with its objects")
    rm.add_argument("bucket")
    options = parser.parse_args()

    store = Store()
    record = store.get(options.bucket)
    if record is None or record.kind != BUCKET:
        names = ", ".join(bucket.identity for bucket in store.all(BUCKET)) or "none"
        sys.exit(f"The emulated cloud has no bucket {options.bucket}. Existing buckets: {names}")
    if options.command == "ls":
        print("\n".join(store.objects(options.bucket)))
        return
    if options.command == "rm":
        Bucket(Cloud(store, LocalClusters(), record.project)).erase(record)
        return
    try:
        content = options.file.read_bytes() if options.file else b""
    except OSError as error:
        sys.exit(f"{options.file} can't be read: {error.strerror}")
    try:
        store.put_object(options.bucket, options.object, content)
    except (ValueError, OSError) as error:
        sys.exit(f"The emulator keeps objects as files, and {options.object} can't be written: {error}")


if __name__ == "__main__":
    main()
