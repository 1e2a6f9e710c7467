"""The crash points of a registry, as parameters of a test."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from infra.runtime.crash_points import AFTER, BEFORE, Step
from tests.faults.victim import CrashPoint


def points_of(
    registry: Mapping[Step, Sequence[int]], short: Collection[tuple[Step, str]] | None = None
) -> list[object]:
    """Before and after each occurrence of each step. All but those in `short` are marked as long; without it none is,
    for a module that is long as a whole."""
    return [
        pytest.param(
            CrashPoint(step=step, when=when, occurrence=occurrence),
            id=f"{when}-{step.value}-{occurrence}",
            marks=() if short is None or (step, when) in short else pytest.mark.long,
        )
        for step, occurrences in registry.items()
        for occurrence in occurrences
        for when in (BEFORE, AFTER)
    ]
