"""Answers of Spark plans, all of which have to have one."""

from __future__ import annotations

from collections.abc import Iterable

from formats.errors import PlanFailed


def all_answered(found: Iterable[str | PlanFailed]) -> list[str]:
    """Raises the PlanFailed of the first plan without an answer."""
    answers = []
    for one in found:
        if isinstance(one, PlanFailed):
            raise one
        answers.append(one)
    return answers
