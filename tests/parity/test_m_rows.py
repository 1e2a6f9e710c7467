"""Each row of what MirrorMaker 2 promises has its proof: docs/parity.md lists the tests of each, and they exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import ROOT, cells, read

PAGE = ROOT / "docs" / "parity.md"
ALL = tuple(f"M{number}" for number in range(1, 27))

_ID = re.compile(r"\*\*(M\d+)\*\*")
_TEST = re.compile(r"`(?P<name>[a-z0-9_/]+::[\w:]+)`(?P<long> \(long\))?")


@dataclass(frozen=True, slots=True)
class Proof:
    name: str  # path below tests/, without .py, then the test's own name
    is_long: bool  # as the page says

    def find(self) -> Any:
        """The test function, or a class of tests. Raises ImportError and AttributeError."""
        path, *names = self.name.split("::")
        found: Any = import_module(f"tests.{path.replace('/', '.')}")
        for name in names:
            found = getattr(found, name)
        return found

    @property
    def marks(self) -> frozenset[str]:
        """Of the test, its classes and its module."""
        path, *names = self.name.split("::")
        found: Any = import_module(f"tests.{path.replace('/', '.')}")
        marks: list[Any] = []
        for name in ["", *names]:
            found = getattr(found, name) if name else found
            own = getattr(found, "pytestmark", [])
            marks += own if isinstance(own, list) else [own]
        return frozenset(mark.name for mark in marks)


@dataclass(frozen=True, slots=True)
class MRow:
    id: str
    proofs: Sequence[Proof]
    not_met: str


def m_rows(page: Path) -> Iterator[MRow]:
    for line in read(page).splitlines():
        if line.startswith("|") and (found := _ID.match(cells(line)[0])) is not None:
            _, proof, not_met = cells(line)
            proofs = [Proof(one["name"], bool(one["long"])) for one in _TEST.finditer(proof)]
            assert proof.count("`") == 2 * len(proofs), f"{found[1]}: not each is the name of a test"
            yield MRow(found[1], proofs, not_met)


def missing(row: MRow) -> list[str]:
    """Names that no test has."""
    found = []
    for proof in row.proofs:
        try:
            test = proof.find()
        except (ImportError, AttributeError):
            found.append(proof.name)
            continue
        if not callable(test) or not proof.name.rpartition("::")[2].startswith(("test_", "Test")):
            found.append(f"{proof.name} is no test")
    return found


ROWS = {row.id: row for row in m_rows(PAGE)}


def test_every_row_is_there_once() -> None:
    assert [row.id for row in m_rows(PAGE)] == list(ALL)


@pytest.mark.parametrize("name", ALL)
def test_m(name: str) -> None:
    row = ROWS[name]
    assert row.proofs
    assert missing(row) == []
    for proof in row.proofs:
        assert proof.is_long == ("long" in proof.marks), f"{proof.name} (long)?"
    assert any("long" not in proof.marks for proof in row.proofs), "one of them is in `make test`"
    number = f"_m{int(name[1:]):02}_"
    assert any(number in proof.name.rpartition("::")[2] for proof in row.proofs), f"one of them is named test{number}…"


def test_every_proof_that_is_named_after_a_row_is_in_it() -> None:
    module = import_module("tests.parity.test_m_proofs")
    for group, members in vars(module).items():
        for name in vars(members) if group.startswith("TestM") else ():
            if name.startswith("test_m"):
                row = ROWS[f"M{int(name[6:8])}"]
                text = f"parity/test_m_proofs::{group}::{name}"
                assert text in row.not_met or text in [proof.name for proof in row.proofs], text


@pytest.mark.parametrize(
    "name",
    [
        "ingress/test_no_such_file::test_x",
        "ingress/test_merged::test_no_such_test",
        "formats/policies/test_acls::TestProtection::test_gone",
        "ingress/test_merged::merging",  # which is no test
    ],
)
def test_a_test_that_is_gone_is_found(name: str) -> None:
    [found] = missing(MRow("M0", [Proof(name, False)], ""))
    assert name in found
