"""Output of commands that write: what they wrote, or would write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from replicator.terminal.output import print_json, print_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One record of the checkpoint topic."""

    key: bytes
    value: bytes | None


def print_changes(changes: Sequence[str], records: Sequence[Written], *, topic: str, done: bool, as_json: bool) -> None:
    """Print changes and records. `done`: they were written to the topic; otherwise nothing was written."""
    if as_json:
        shown = [{"key": json.loads(r.key), "value": None if r.value is None else json.loads(r.value)} for r in records]
        print_json({"written": done, "changes": list(changes), "topic": topic, "records": shown})
        return
    for change in changes:
        print_text(change)
    if not records:
        return
    print_text(f"written to {topic}:" if done else f"would be written to {topic}:")
    for record in records:
        print_text(f"  {record.key.decode()} = {'(removed)' if record.value is None else record.value.decode()}")
    if not done:
        print_text("nothing was written; to write it, add --yes")
