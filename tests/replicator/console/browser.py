"""Debian's Chromium, driven by npm packages that are fetched into a folder of the caller's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from infra.runtime.lifecycle import Clock, SystemClock
from replicator.console.access import rules
from replicator.console.server import ConsoleService
from tests.replicator.console.console_states import GivenStates

PACKAGES = ("playwright-core@1.65.1", "axe-core@4.14.1")
PATIENCE_S = 300.0

Browse = Callable[..., Mapping[str, Any]]


def chromium() -> str | None:
    """None where it, or npm, is absent."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return None if shutil.which("npm") is None else found


def browser_in(folder: Path) -> Browse:
    """Runs browse.mjs, which says what it is asked for and what it answers."""
    subprocess.run(
        ["npm", "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", *PACKAGES],
        cwd=folder,
        check=True,
        timeout=PATIENCE_S,
    )
    shutil.copy(Path(__file__).with_name("browse.mjs"), folder)

    def run(base: str, **wanted: Any) -> Mapping[str, Any]:
        asked = {"base": base, "browser": chromium(), "paths": ["/"], "schemes": ["light"], "widths": [1280], **wanted}
        done = subprocess.run(
            ["node", "browse.mjs", json.dumps(asked)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=os.environ | {"TMPDIR": str(folder)},
        )
        assert done.returncode == 0, done.stderr
        found: Mapping[str, Any] = json.loads(done.stdout)
        return found

    return run


@contextmanager
def served(reader: GivenStates, token: str | None = None, clock: Clock | None = None) -> Iterator[str]:
    """A console of given states; yields its address."""
    service = ConsoleService(
        reader,
        listen=("127.0.0.1", 0),
        rules=rules("127.0.0.1", token=token),
        interval=timedelta(hours=1),
        clock=clock or SystemClock(),
    )
    service.start()
    try:
        yield service.address.rstrip("/")
    finally:
        service.stop()
        service.join()
