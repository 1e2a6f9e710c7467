"""Runs one of the product's commands to its end, in a process that is under orders, or on Spark workers that are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults.victim import ROOT, Orders


def run_ordered(
    orders: Orders, command: Sequence[str], *, code: int, folder: Path, seconds: float, on_spark: bool = False
) -> str:
    """What it printed. `code`: the exit code that is asserted. `folder`: for its temporary files. `on_spark`: each
    worker is under the orders, and not the driver."""
    module, given = ("replicator", orders.everywhere) if on_spark else ("tests.faults.victim", orders.environment)
    ended = subprocess.run(
        [sys.executable, "-m", module, *command],
        env={**os.environ, **given, "SECRET": "test", "TMPDIR": str(folder)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert ended.returncode == code, ended.stderr + ended.stdout
    return ended.stdout
