"""Prints the folder of a Helm chart.

The emulator reads charts from folders, not from registries.

emulator/run chart REFERENCE VERSION   such as oci://registry.k8s.io/jobset/charts/jobset 0.11.1
"""

from __future__ import annotations

import argparse
import sys

from emulator.pulumi.kubernetes.helm import chart
from emulator.pulumi.plugin import Refused


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run chart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", help="the chart's address in its registry")
    parser.add_argument("version")
    options = parser.parse_args()
    try:
        print(chart(options.reference, options.version).folder)
    except Refused as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
