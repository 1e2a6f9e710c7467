"""What a plan of `replicator restore` does to one destination, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.restore.acl_restore import RestoredAcls
    from replicator.restore.plan import TopicPlan


def destination_lines(topic: TopicPlan) -> Iterator[str]:
    name, creation = topic.destination, topic.creation
    if topic.facts is None:
        yield f"{name} is created: {topic.partition_count} partitions{_listed(creation.configs)}"
    if topic.purge is not None:
        for partition, marks in topic.purge.filled.items():
            yield f"{partition} is emptied: offsets {marks.low}-{marks.high - 1} are deleted"
    if topic.source is not None:
        yield f"  the source's topic is {topic.incarnation.topic} in {topic.source}"
    if creation.source:
        yield f"  of the source's topic: {_listed(creation.source)[2:]}"
    for config, value in creation.held.items():
        yield f"  {config}={creation.configs[config]} (the source has {value})"
    if creation.excluded:
        yield f"  set at the source, and not taken: {_listed(creation.excluded)[2:]}"
    for config, why in creation.refused.items():
        yield f"  {config} of the source's topic is left out: {why}"
    if topic.acls is not None:
        yield from _acl_lines(topic.acls)


def _acl_lines(acls: RestoredAcls) -> Iterator[str]:
    if acls.why:
        yield f"  no ACLs are created: {acls.why}"
    for binding in acls.create:
        yield f"  ACL is created: {binding}"
    for binding in acls.existing:
        yield f"  ACL exists: {binding}"
    for binding in acls.left_out:
        yield f"  ACL is left out, as it denies this restore its destination: {binding}"


def destination_json(topic: TopicPlan) -> Mapping[str, object]:
    creation, acls, source = topic.creation, topic.acls, topic.source
    purged = {} if topic.purge is None else topic.purge.filled
    return {
        "configs": dict(creation.configs),
        "catalog": None
        if source is None
        else {"generation": source.generation, "observed_at": source.observed_at.isoformat()},
        "source_configs": {
            "taken": dict(creation.source),
            "held": dict(creation.held),
            "excluded": dict(creation.excluded),
            "refused": dict(creation.refused),
        },
        "acls": None
        if acls is None
        else {
            "created": [str(binding) for binding in acls.create],
            "existing": [str(binding) for binding in acls.existing],
            "left_out": [str(binding) for binding in acls.left_out],
            "why_none": acls.why,
        },
        "purged": [
            {"partition": partition.partition, "offsets": [marks.low, marks.high - 1]}
            for partition, marks in purged.items()
        ],
    }


def _listed(configs: Mapping[str, str]) -> str:
    return "".join(f", {name}={value}" for name, value in configs.items())
