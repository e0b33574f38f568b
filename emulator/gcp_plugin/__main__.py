"""The process that the engine starts as `pulumi-resource-gcp`."""

from __future__ import annotations

import threading

from emulator.gcp_plugin.plugin import Gcp
from emulator.plugin import serve


def main() -> None:
    """Serves.

    A thread imports the SDK's types meanwhile, so that the engine gets the port sooner.
    """
    plugin = Gcp()
    threading.Thread(target=plugin.warm_up, daemon=True).start()
    serve(plugin)


if __name__ == "__main__":
    main()
