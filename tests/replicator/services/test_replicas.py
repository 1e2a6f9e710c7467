"""The check of copies: the rules of S3 replication that it asks for, and what `[sync]` copies."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from formats.errors import StoreRefused
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.contracts.deployment import ReplicationRule
from infra.runtime.lifecycle import Stop
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import parse
from replicator.services import setups
from replicator.services.replicas import replica_check, replication_rules

CONFIG = parse('region = "r"\n[s3]\nbucket = "b"')


class Setup:
    """Of a bucket whose rules these credentials may read, or not."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses, self.asked = refuses, 0

    def replication(self) -> Sequence[ReplicationRule]:
        self.asked += 1
        if self.refuses:
            raise StoreRefused("GetBucketReplication s3://b: 403")
        return [ReplicationRule(name="own", bucket="there")]


@pytest.mark.parametrize("refuses", [False, True])
def test_rules_are_read_once_and_a_refusal_stalls_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, refuses: bool
) -> None:
    setup = Setup(refuses=refuses)
    monkeypatch.setattr(setups, "s3_setup", lambda *_: setup)
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        rules = replication_rules(CONFIG, Stop(), opened)
        assert setup.asked == 0
        assert [len(rules()), len(rules())] == ([0, 0] if refuses else [1, 1])
    assert setup.asked == 1
    assert [one.message for one in caplog.records] == (["replication_rules_not_read"] if refuses else [])


SYNCED = parse("""
region = "r"
[s3]
bucket = "b"
[sync]
topics = ["orders"]
levels = [0]
[sync.destination]
bucket = "there"
""")


def test_sync_copies_selected_topics_and_levels_of_the_own_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not copy waits for no copy: of another region's archive nothing could ever expire."""
    monkeypatch.setattr("replicator.services.replicas.stored_objects", lambda *_: MemoryObjectStore())
    store = SegmentStore(MemoryObjectStore(), "data")
    with ExitStack() as opened:
        check = replica_check(SYNCED, store, Stop(), opened)
        found = {}
        for region, topic, level in (("r", "orders", 0), ("r", "orders", 1), ("r", "users", 0), ("other", "orders", 0)):
            segment = Segment(SourcePartition(region, topic, 0), level, OffsetRange(0, 9))
            store.store(segment, io.BytesIO(b"x"), 1)
            found[region, topic, level] = check.uncopied(segment)
    assert [where for where, why in found.items() if why.endswith("was not copied by sync yet")] == [("r", "orders", 0)]
    assert sum(bool(why) for why in found.values()) == 1
