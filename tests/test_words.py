"""Names, docstrings, comments, messages and pages use the field's words: see the glossary in docs/glossary.md.

Words that name no thing of Kafka, S3, Parquet or Spark, and hide who does what, are listed here. They are found within
names, too: `last_said`, `NOBODY`. Decisions keep the words of their time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.spark.packages import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))

WORDS = re.compile(
    r"\b(?:told(?! apart)|said|whoever|nobody|at hand|wish(?:es|ed)?|a life of"
    r"|look(?:s|ed|ing)?(?! ?(?:up|ups|like|as if)\b)(?!s? (?:\w+ ){1,4}up\b))\b",
    re.IGNORECASE,
)
KEPT = frozenset(
    {
        'infra/runtime/log_fields.py: "said"',  # the name of a field of the logs
        'tests/processes/test_compacted_while_read.py: "said"',  # the same field, as a reader of the log has it
        *(f"replicator/restore/__init__.py: {word}" for word in ("Wishes", '"Wishes"')),  # an import that keeps working
    }
)


def files() -> Iterator[Path]:
    """All but this one, which lists the words."""
    for package in (*PACKAGES, "bench", "tests"):
        yield from (path for path in sorted((ROOT / package).rglob("*.py")) if path != Path(__file__).resolve())
    yield from (ROOT / page for page in PAGES)


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Line and word, with the quotes around it."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORDS.finditer(line.replace("_", " ")):
            quoted = line[max(match.start() - 1, 0) : match.end() + 1]
            yield number, quoted if quoted[:1] == quoted[-1:] == '"' else match[0]


def test_the_words_are_the_fields() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in files()
        for number, word in found_in(path.read_text(encoding="utf-8"))
        if f"{path.relative_to(ROOT)}: {word}" not in KEPT
    ]
    assert found == []


@pytest.mark.parametrize("text", ["# whoever asks", '"""Look at it again."""', "what the broker said", "at hand"])
def test_a_planted_word_is_found(text: str) -> None:
    assert list(found_in(text))


@pytest.mark.parametrize(
    "text", ["last_said = 1", "def test_what_is_at_hand()", "NOBODY", "class Told:", "_look(group)"]
)
def test_a_word_within_a_name_is_found(text: str) -> None:
    assert list(found_in(text))


@pytest.mark.parametrize(
    "text", ["told apart by the id", "look it up", "looks partitions up", "lookups", "looks like", "looked_up"]
)
def test_idioms_stay(text: str) -> None:
    assert list(found_in(text)) == []
