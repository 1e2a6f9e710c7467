"""Words of ours that messages use are explained in docs/glossary.md."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = ("replicator", "egress", "ingress", "compaction", "infra")

WORDS = (
    "adopt",
    "ancestor",
    "checkpoint",
    "claim",
    "committed",
    "fence",
    "fork",
    "gap",
    "incarnation",
    "lag",
    "level",
    "parked",
    "position",
    "proven",
    "quarantined",
    "recorded gap",
    "release",
    "run",
    "seed",
    "segment",
    "skip",
    "stopped",
)
"""What a message says to somebody who has not read the code. A new one belongs here and into the glossary."""


def glossary() -> set[str]:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return set(re.findall(r"\*\*([^*]+)\*\*", text))


@cache
def texts() -> str:
    """Every text in the product but docstrings, in one."""
    found: list[str] = []
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            nodes = list(ast.walk(tree))
            docstrings = {
                id(node.body[0].value)
                for node in nodes
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            found += [
                node.value
                for node in nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            ]
    return "\n".join(found)


def test_every_word_of_a_message_is_explained() -> None:
    assert sorted(set(WORDS) - glossary()) == []


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_still_used(word: str) -> None:
    assert re.search(rf"\b{re.escape(word)}", texts(), re.IGNORECASE), f"{word!r}: no message has it any more"
