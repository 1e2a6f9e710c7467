"""Asking a cluster about topics of which it may refuse some."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from formats.errors import TargetError
from infra.contracts.consumer import ClusterAdmin, TopicFacts


def describe_each(
    admin: ClusterAdmin, topics: Collection[str]
) -> tuple[Mapping[str, TopicFacts], Mapping[str, TargetError]]:
    """What the cluster shows of `topics`, in one call, and those about which it refuses to answer: one that is refused
    holds up no other. In neither: it does not exist. Raises BrokerUnavailable."""
    try:
        return admin.describe(topics), {}
    except TargetError:
        found: dict[str, TopicFacts] = {}
        refused: dict[str, TargetError] = {}
        for topic in topics:
            try:
                found |= admin.describe([topic])
            except TargetError as error:
                refused[topic] = error
        return found, refused
