"""Plays a page of `docs/` as an operator does: its commands run in order, and answer what the page shows.

    page ─ section ─┬ ```sh       runs as it is, and ends with 0
                    └ ```console  each line behind "$ " runs; what follows it is its answer

`<!-- exit code 3 -->`, or `<!-- exit code 0 or 3 -->`, before a block is how its last command ends. In an answer, `…`
alone in a line stands for any lines, and within a line for any text; times, ages, sizes, ids and column widths are not
compared. A page says `orders` and `us-east-1`: `names` says what these are on the stack of the test, and is applied the
other way round to what is printed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.docs.markdown import ROOT, Block, blocks, read

RUNBOOKS = ROOT / "docs" / "runbooks"
NOT_RUN, EXIT_CODE = "not run: ", "exit code "
PROMPT, ANY = "$ ", "…"
PATIENCE = timedelta(minutes=5)  # a drill starts a broker
_HEADING = re.compile(r"^#{1,6} (?P<title>.+)$")
_MASKS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b[\d.,]+ (?:B|[KMGT]i?B)\b"), "<size>"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|[smhd])(?:\d+[smh])?\b(?: ago)?"), "<age>"),
    (re.compile(r"@[A-Za-z0-9_-]{20,22}"), "@<id>"),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b(?=[ ,;.)]|$)"), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,32}\b"), "<id>"),
)


class Differs(AssertionError):
    """A command of a page did not do what the page says."""


@dataclass(frozen=True, slots=True)
class Command:
    page: str
    line: int
    text: str
    answer: str | None = None  # None: the page does not show it
    exit_codes: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text.strip()}"


@dataclass
class Book:
    """One page that is played. `names`: by what the page says, what it is here; may change between two sections."""

    page: Path
    folder: Path  # where the commands run
    environment: Mapping[str, str]
    names: dict[str, str] = field(default_factory=dict)
    played: set[str] = field(default_factory=set)

    def play(self, heading: str) -> str:
        """Run every command below `heading`, up to the next one. Returns all that was printed. Raises Differs."""
        mine = [command for title, command in commands(self.page) if title == heading]
        if not mine:
            raise Differs(f"{self.page.name} has no command below {heading!r}")
        self.played.add(heading)
        return "".join(map(self.run, mine))

    def run(self, command: Command) -> str:
        done = subprocess.run(
            ["bash", "-ec", self.real(command.text)],
            cwd=self.folder,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE.total_seconds(),
        )
        printed = self.shown(done.stdout)
        if done.returncode not in command.exit_codes:
            raise Differs(f"{command}\nexit code {done.returncode}, not {command.exit_codes}:\n{printed}")
        if command.answer is not None and not answers(printed, command.answer):
            raise Differs(f"{command}\n--- the page shows\n{command.answer}--- it printed\n{printed}")
        return printed

    def real(self, text: str) -> str:
        return _replaced(text, self.names)

    def shown(self, text: str) -> str:
        return _replaced(text, {here: there for there, here in self.names.items()})

    def left(self) -> set[str]:
        """Headings with commands that were not played."""
        return {title for title, _ in commands(self.page)} - self.played


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """At once, so that no replacement is replaced; the longest name first."""
    if not names:
        return text
    wanted = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w-])(?:{wanted})(?![\w-])", lambda match: names[match[0]], text)


def commands(page: Path) -> Iterator[tuple[str, Command]]:
    """Each with the heading that it stands below, in order. What is not run is left out."""
    titles = _titles(page)
    for block in blocks(page):
        if block.language in ("sh", "console") and not block.mark.startswith(NOT_RUN):
            title = next(title for line, title in reversed(titles) if line < block.line)
            for command in _of(block):
                yield title, command


def _titles(page: Path) -> Sequence[tuple[int, str]]:
    found, in_block = [], False
    for number, line in enumerate(read(page).splitlines(), start=1):
        if line.startswith("```"):
            in_block = not in_block
        elif not in_block and (match := _HEADING.match(line)):
            found.append((number, match["title"]))
    return found


def _of(block: Block) -> Sequence[Command]:
    codes = tuple(map(int, re.findall(r"\d+", block.mark))) if block.mark.startswith(EXIT_CODE) else (0,)
    if block.language == "sh":
        return [Command(block.page, block.line, block.text, exit_codes=codes)]
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(block.text.splitlines(keepends=True), start=1):
        if line.startswith(PROMPT):
            found.append((block.line + number, line.removeprefix(PROMPT), ""))
        elif found and found[-1][1].endswith("\\\n"):
            found[-1] = (found[-1][0], found[-1][1] + line, "")
        elif found:
            found[-1] = (*found[-1][:2], found[-1][2] + line)
    last = len(found) - 1
    return [
        Command(block.page, line, text, answer, codes if number == last else (0,))
        for number, (line, text, answer) in enumerate(found)
    ]


def answers(printed: str, shown: str) -> bool:
    """Whether it is what the page shows."""
    pattern = "".join(map(_line, _masked(shown).splitlines()))
    return re.fullmatch(pattern, _masked(printed)) is not None


def _line(line: str) -> str:
    if line == ANY:
        return r"(?:.*\n)*?"
    return re.escape(line).replace(re.escape(ANY), ".*?") + r"\n"


def _masked(text: str) -> str:
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines)
