"""Prints where the time of the last whole `make test` went: python -m maintain.times [--of part] [--markdown 30]."""

from __future__ import annotations

import argparse

from maintain.times.record import PART, WHOLE, Record
from maintain.times.tables import legend, markdown, plain, summary

parser = argparse.ArgumentParser(prog="make times", description=__doc__)
parser.add_argument("--of", choices=[*WHOLE.values(), PART], default="test", help="which run; part: of selected tests")
parser.add_argument("--markdown", type=int, metavar="FILES", help="a table for a page, with so many files of their own")
arguments = parser.parse_args()
record = Record.read(arguments.of)
if record is None:
    raise SystemExit(f"No run of this kind is recorded: {arguments.of}. Run `make {arguments.of}` first.")
if arguments.markdown:
    print(markdown(record, arguments.markdown), summary(record), sep="\n\n")
else:
    print(plain(record), summary(record), legend(), sep="\n\n")
