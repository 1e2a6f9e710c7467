"""A transform between an archive and a real cluster: in a transaction, without one, and as `verify` sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest

from formats.messages.delivery_checkpoint import POSITION, Checkpoint, decode, kind_of
from formats.topic_selection import TopicPattern
from infra.contracts.cluster import TopicPartition
from infra.local.waiting import wait_until
from replicator.config import Config
from replicator.selection import Selection
from replicator.services.ingress import build_ingress
from replicator.verify.scope import TARGET, VerifyScope
from replicator.verify.verify import Verification
from tests.integration.running import running_services
from tests.integration.test_ingress_incarnations import (  # noqa: F401 - the fixture
    PATIENCE,
    Archive,
    archive,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]

MASKED_EVEN = "tests.formats.records.user_transforms:masked_even"


def delivering(archive: Archive, delivery: Literal["exactly-once", "at-least-once"]) -> Config:  # noqa: F811
    config = archive.config(transform=MASKED_EVEN)
    assert config.ingress is not None
    return replace(config, ingress=replace(config.ingress, delivery=delivery))


def checkpoint(archive: Archive) -> Checkpoint | None:  # noqa: F811
    """The last one of the topic."""
    found = [
        decode(message.value() or b"")
        for message in archive.cluster.messages(TopicPartition(archive.checkpoints, 0))
        if kind_of(message.key() or b"") == POSITION and archive.topic.encode() in (message.key() or b"")
    ]
    return found[-1] if found else None


def await_position(archive: Archive, next_offset: int, dropped: int) -> None:  # noqa: F811
    def is_there() -> bool:
        found = checkpoint(archive)
        return found is not None and (found.next_offset, found.dropped) == (next_offset, dropped)

    assert wait_until(is_there, PATIENCE), checkpoint(archive)


def verified(archive: Archive, target: Config) -> Mapping[str, object]:  # noqa: F811
    selection = Selection(region="a", topics=[TopicPattern(archive.topic)])
    with Verification(target, selection) as verification:
        [entry] = verification.run([VerifyScope(kind=TARGET, cluster=target)]).entries
    return entry


def test_records_are_masked_and_left_out_under_both_guarantees(archive: Archive) -> None:  # noqa: F811
    """The second process continues the count of the first. Of some segments nothing is left."""
    destination = TopicPartition(f"{archive.topic}.ingress", 0)
    archive.put(0, 9)
    archive.put(10, 11)
    with running_services() as start:
        start(build_ingress(delivering(archive, "exactly-once")))
        await_position(archive, 12, 6)
        archive.put(12, 12)
        archive.put(13, 13)
        await_position(archive, 14, 7)
    archive.put(14, 14)
    archive.put(15, 15)
    with running_services() as start:
        start(build_ingress(delivering(archive, "at-least-once")))
        await_position(archive, 16, 8)
    assert archive.arrived(destination.topic) == list(range(0, 16, 2))
    assert {record.value for record in archive.cluster.records(destination)} == {b"***"}
    entry = verified(archive, delivering(archive, "exactly-once"))
    assert (entry["equal"], entry["records"], entry["transform"]) == (True, 8, MASKED_EVEN), entry
    assert not verified(archive, archive.config())["equal"]
