"""Checks of the keys of [encryption]: the one for new objects is used once, the others are asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replicator.doctor.facts import DeploymentFacts, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity

REFUSED = Kind(
    "encryption-key-refused",
    Severity.ERROR,
    "no segment and no control object can be stored, and none that this key wrapped can be read",
    "do what the reason names; `replicator rights ROLE --iam` prints the policy for the credentials of [encryption]",
)
UNREACHABLE = Kind(
    "encryption-key-unreachable",
    Severity.ERROR,
    "nothing is stored or read while the key cannot be asked for",
    "repair what the reason names: network, endpoint or credentials",
)
NOT_USABLE = Kind(
    "encryption-read-key-unusable",
    Severity.ERROR,
    "objects that this key wrapped cannot be read: ingress, merges and restores stop at them",
    "enable the key, cancel its deletion, or correct encryption.kms_read_key_ids",
)


def new_objects(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    for one in facts.keys:
        if not one.is_for_new_objects:
            continue
        if isinstance(one.problem, Unread):
            yield UNREACHABLE.at(f"key {one.name}", one.problem.reason)
        elif one.problem:
            yield REFUSED.at(f"key {one.name}", one.problem)


def earlier_objects(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    others = [one for one in facts.keys if not one.is_for_new_objects]
    for one in others:
        if not isinstance(one.problem, Unread) and one.problem:
            yield NOT_USABLE.at(f"key {one.name}", one.problem)
    for one in others:
        known(one.problem)


KEY_CHECKS: Sequence[Check] = (
    Check(
        name="encryption-key",
        checks="the key for new objects makes a data key, and unwraps it",
        where=lambda _: "[encryption]",
        judge=new_objects,
        kinds=(REFUSED, UNREACHABLE),
        applies=lambda facts: any(one.is_for_new_objects for one in facts.keys),
    ),
    Check(
        name="encryption-read-keys",
        checks="the keys of objects that are read are enabled",
        where=lambda _: "[encryption]",
        judge=earlier_objects,
        kinds=(NOT_USABLE,),
        applies=lambda facts: any(not one.is_for_new_objects for one in facts.keys),
    ),
)
