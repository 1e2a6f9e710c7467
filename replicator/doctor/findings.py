"""Findings of the doctor, and the checks that make them. Pure.

facts ──> check ──> nothing             everything is as it should be: `ok`
               ├──> findings            each of a kind: an error or a warning, with its remedy
               └──> NotRead             a fact could not be read: `unknown`, which is not `ok`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from replicator.doctor.facts import DeploymentFacts, NotRead


class Severity(StrEnum):
    ERROR = "error"  # records are lost, stopped or delivered twice, or will be
    WARNING = "warning"  # it works, but for how long?
    UNKNOWN = "unknown"  # not checked, for the reason given
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    severity: Severity
    name: str  # of its kind; of the check, where nothing was found
    where: str
    what: str
    why: str = ""  # why it matters
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: everything that does not depend on the deployment."""

    name: str
    severity: Severity
    why: str
    remedy: str

    def at(self, where: str, what: str, remedy: str = "") -> Diagnosis:
        """`remedy`: with more detail than that of the kind."""
        return Diagnosis(
            severity=self.severity, name=self.name, where=where, what=what, why=self.why, remedy=remedy or self.remedy
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`judge` yields findings of `kinds`, and raises NotRead."""

    name: str
    checks: str  # what is checked, for people
    where: Callable[[DeploymentFacts], str]
    judge: Callable[[DeploymentFacts], Iterator[Diagnosis]]
    kinds: Sequence[Kind]
    applies: Callable[[DeploymentFacts], bool] = lambda _: True

    def findings(self, facts: DeploymentFacts) -> Sequence[Diagnosis]:
        """At least one, if the check applies. What was found before a fact was missing counts, too."""
        if not self.applies(facts):
            return []
        found: list[Diagnosis] = []
        try:
            for finding in self.judge(facts):
                found.append(finding)  # noqa: PERF402 -- what came before an exception stays
        except NotRead as unread:
            found.append(
                Diagnosis(
                    severity=Severity.UNKNOWN,
                    name=self.name,
                    where=self.where(facts),
                    what=f"not checked: {self.checks}",
                    why=str(unread),
                    remedy="repair what the reason names, or run the doctor with rights to read it",
                )
            )
        return found or [Diagnosis(severity=Severity.OK, name=self.name, where=self.where(facts), what=self.checks)]


def examine(checks: Sequence[Check], facts: DeploymentFacts) -> Sequence[Diagnosis]:
    """The findings of all checks: one that cannot be made hides no other."""
    return [finding for check in checks for finding in check.findings(facts)]
