"""Flipped bits must not cause a decoder crash, a hang, or a wrong record. See `flips.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = ROOT / "tests/golden/v1/row-groups.segment"
OUR_KEY = "eu-1/orders/3/1/00000000000000000000-00000000000000000700"
ANCESTORS = ROOT / "tests/golden/ancestor/data/src/kr.samples/0/0/00000000000000000000-00000000000000000039"
ANCESTOR_KEY = "src/kr.samples/0/0/00000000000000000000-00000000000000000039"


def outcomes(file: Path, key: str, *, first: int = 0, samples: int = 0, timeout_seconds: int = 60) -> dict[str, int]:
    """`first` may be negative: counted from the end. No samples: every bit."""
    size = file.stat().st_size
    numbers = [str(n) for n in (first % size, size, samples)]
    command = [sys.executable, "-m", "tests.formats.flips", str(file), key, *numbers]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout_seconds, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    result: dict[str, int] = json.loads(done.stdout)
    return result


def test_the_file_has_several_row_groups_and_hundreds_of_records() -> None:
    expected = json.loads(OURS.with_suffix(".json").read_text())
    assert len(expected["records"]) >= 200
    assert expected["footer"]["segment"] == OUR_KEY


def test_flipped_bits_anywhere_are_noticed() -> None:
    assert outcomes(OURS, OUR_KEY, samples=1_000) == {"noticed": 1_000}


def test_flipped_bits_in_the_tail_are_noticed() -> None:
    assert outcomes(OURS, OUR_KEY, first=-2_048) == {"noticed": 8 * 2_048}


@pytest.mark.long
def test_every_flipped_bit_is_noticed() -> None:
    assert outcomes(OURS, OUR_KEY, timeout_seconds=600) == {"noticed": 8 * OURS.stat().st_size}


def test_flipped_bits_of_the_ancestors_end_in_typed_errors_or_pass_unseen() -> None:
    """The ancestor wrote no checksums of records, so some pass; none may crash, hang, or raise another error."""
    for seen in (outcomes(ANCESTORS, ANCESTOR_KEY, samples=500), outcomes(ANCESTORS, ANCESTOR_KEY, first=-200)):
        assert seen.keys() <= {"noticed", "same", "differs"}
        assert seen["noticed"] > 0


@pytest.mark.long
def test_every_flipped_bit_of_the_ancestors_metadata() -> None:
    seen = outcomes(ANCESTORS, ANCESTOR_KEY, first=-1_000, timeout_seconds=600)
    assert seen.keys() <= {"noticed", "same", "differs"}
    seen = outcomes(ANCESTORS, ANCESTOR_KEY, samples=50_000, timeout_seconds=600)
    assert seen.keys() <= {"noticed", "same", "differs"}
