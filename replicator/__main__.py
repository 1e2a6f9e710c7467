"""The process `replicator`, and `python -m replicator`."""

from __future__ import annotations

import os
from typing import NoReturn

INTERRUPTED = 130


def run() -> NoReturn:
    """Run a command and exit. Nothing keeps the process alive after that, and Ctrl-C is not reported as an error."""
    try:
        from infra.runtime.collector import collect_rarely  # noqa: PLC0415

        collect_rarely()  # before all else is loaded
        from infra.runtime.process_exit import exit_process  # noqa: PLC0415
        from replicator.main import main  # noqa: PLC0415 -- Ctrl-C may come while modules are loaded

        try:
            main()
        except SystemExit as end:
            exit_process(end.code if isinstance(end.code, int) else 0)
        exit_process(0)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
