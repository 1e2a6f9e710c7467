"""The part of `replicator status` about the consumer groups of the source regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from infra.settings.units import format_age
from replicator.status.groups import GroupsStatus
from replicator.terminal.output import count_text, print_text

if TYPE_CHECKING:
    from replicator.group_sync import GroupDecisions

MOST = 10  # groups in the text; JSON has all
SHOWN = {"write": "to write in the next round", "same": "as at the source"}
"""Outcomes that need no operator, as text."""


def print_groups(found: Iterable[GroupsStatus], now: datetime) -> None:
    for one in found:
        for line in groups_text(one, now):
            print_text(line)


def groups_text(status: GroupsStatus, now: datetime) -> Iterator[str]:
    """The lines about one region."""
    if (report := status.report) is not None:
        age = format_age(now - report.as_of)
        yield f"groups of {status.region}: {count_text(len(report.snapshot.groups))} in the newest snapshot, {age} ago"
        if others := report.snapshot.unsupported:
            named = _first([f"{group_id} ({kind})" for group_id, kind in sorted(others.items())], ", ")
            yield f"groups of {status.region} of kinds that are not moved: {named}"
    lines = []
    for group_id, (why, at) in status.unreadable.items():
        known = "its offsets are not known" if at is None else f"its offsets are those of {format_age(now - at)} ago"
        lines.append(f"! group {group_id} of {status.region}: {known}: {why}")
    if lines:
        yield _first(lines, "\n")
    for problem in status.problems:
        yield f"! groups of {status.region}: {problem}"


def print_decisions(found: Iterable[GroupDecisions]) -> None:
    for one in found:
        for line in decisions_text(one):
            print_text(line)


def decisions_text(found: GroupDecisions) -> Iterator[str]:
    """Why offsets are committed here for the groups of a region, or not."""
    if found.problem:
        yield f"what is done here with groups of {found.region} cannot be read: {found.problem}"
        return
    counts = Counter(one.outcome.value for some in found.groups.values() for one in some)
    named = ", ".join(f"{count_text(count)} {SHOWN.get(outcome, outcome)}" for outcome, count in sorted(counts.items()))
    yield f"offsets of groups of {found.region} here: {named or 'none'}"
    lines = [
        f"  {group} in {one.position.target}: {one.outcome.value}: {one.reason or one.position.reason}"
        for group, some in found.groups.items()
        for one in some
        if one.outcome.value not in SHOWN
    ]
    if lines:
        yield _first(lines, "\n")


def _decisions_json(found: GroupDecisions) -> Mapping[str, object]:
    return {
        "problem": found.problem or None,
        "groups": {
            group: [
                {
                    "topic": one.position.target.topic,
                    "partition": one.position.target.partition,
                    "outcome": one.outcome.value,
                    "offset": one.position.downstream,
                    "here": one.here,
                    "exactness": one.position.exactness.value,
                    "reason": one.reason or one.position.reason or None,
                }
                for one in some
            ]
            for group, some in found.groups.items()
        },
    }


def groups_json(
    found: Iterable[GroupsStatus], decisions: Iterable[GroupDecisions] = ()
) -> Sequence[Mapping[str, object]]:
    by_region = {one.region: _decisions_json(one) for one in decisions}
    return [
        {
            "region": one.region,
            "generation": one.report and one.report.generation,
            "as_of": one.report and one.report.as_of.isoformat(),
            "groups": one.report and len(one.report.snapshot.groups),
            "unsupported": {} if one.report is None else dict(one.report.snapshot.unsupported),
            "unreadable": {
                group_id: {"reason": why, "as_of": at and at.isoformat()}
                for group_id, (why, at) in one.unreadable.items()
            },
            "problems": list(one.problems),
            "sync": by_region.get(one.region),
        }
        for one in found
    ]


def _first(texts: Sequence[str], separator: str) -> str:
    more = [f"and {len(texts) - MOST} more"] if len(texts) > MOST else []
    return separator.join([*texts[:MOST], *more])
