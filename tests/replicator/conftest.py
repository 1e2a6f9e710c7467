"""An archive, a cluster to restore into, and the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from infra.local.stack import LocalStack
from tests.replicator.restore.place import Commands, Place


@pytest.fixture
def place(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Place]:
    with closing(Place(stack, unique, tmp_path)) as found:
        yield found


@pytest.fixture
def commands(place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("SECRET", "test")
    return Commands(place, capsys)
