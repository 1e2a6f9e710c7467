"""Makes the pictures of docs/console.md again: python -m tests.replicator.console.pictures"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fakes.surroundings import HandClock
from tests.replicator.console.browser import browser_in, served
from tests.replicator.console.console_states import NOW, GivenStates, small_state

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
TOPIC = "/topics/us/orders.created"
WANTED = (  # file, path, scheme, width
    ("console-overview-light", "/", "light", 900),
    ("console-segments-dark", f"{TOPIC}/0", "dark", 900),
    ("console-narrow-dark", TOPIC, "dark", 400),
)


def main() -> None:
    clock = HandClock()
    clock.at = NOW + timedelta(seconds=10)
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, served(GivenStates([small_state()], samples=90), clock=clock) as base:
        browse = browser_in(Path(folder))
        for name, path, scheme, width in WANTED:
            shots = Path(folder) / name
            shots.mkdir()
            browse(base, paths=[path], schemes=[scheme], widths=[width], shots=str(shots))
            (picture,) = shots.iterdir()
            shutil.copy(picture, IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
