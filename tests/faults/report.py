"""What a soak saw, as a row of docs/faults.md; and how much is different when something is."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.soak import Outcome
    from tests.processes.judge import Content

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "docs" / "faults.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Records."""

    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    foreign: int = 0  # altered, or of somebody else

    def __add__(self, other: Differences) -> Differences:
        return Differences(
            lost=self.lost + other.lost,
            duplicated=self.duplicated + other.duplicated,
            reordered=self.reordered + other.reordered,
            foreign=self.foreign + other.foreign,
        )


def differences(source: Sequence[Content], target: Sequence[Content]) -> Differences:
    """Of one partition. Only a count: whether it is innocent says the judge."""
    there, here = Counter(source), Counter(target)
    foreign = sum(count for record, count in here.items() if record not in there)
    places = {record: index for index, record in enumerate(source) if there[record] == 1}
    first: dict[int, None] = {}
    for record in target:
        if record in places:
            first.setdefault(places[record])
    order = list(first)
    return Differences(
        lost=(there - here).total(),
        duplicated=(here - there).total() - foreign,
        reordered=sum(after < before for before, after in pairwise(order)),
        foreign=foreign,
    )


def append(command: str, outcome: Outcome, *, judged: str) -> None:
    """One row. `judged`: what was asked of the target."""
    found = outcome.differences
    kills = sum(n for name, n in outcome.tally.faults.items() if name.startswith("kill "))
    rest = outcome.tally.total - kills
    cells = [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"`{command}`",
        _commit(),
        judged,
        str(outcome.schedules),
        f"{outcome.schedules - len(outcome.failures)}",
        str(found.lost),
        str(found.duplicated),
        str(found.reordered),
        str(found.foreign),
        f"{kills} kills, {rest} others",
        f"{outcome.tally.in_flight} of {outcome.tally.total}",
        f"{outcome.seconds / max(outcome.schedules, 1):.1f} s",
    ]
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    at = max(n for n, line in enumerate(lines) if line.startswith("|")) + 1
    lines.insert(at, f"| {' | '.join(cells)} |")
    detail = "; ".join(f"{name} {count}" for name, count in sorted(outcome.tally.faults.items()))
    failed = f"; failed: {', '.join(map(str, sorted(outcome.failures)))}" if outcome.failures else ""
    lines += ["", f"`{command}` at {_commit()}: {detail}{failed}."]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"
