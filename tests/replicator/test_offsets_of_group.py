"""What `replicator offsets translate --group` says of the snapshot that it takes a group's offsets from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from formats.control.group_snapshot import (
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    encode_group_snapshot,
)
from formats.control.keys import groups_prefix
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.contracts.cluster import LogEnds, TopicPartition
from ingress.groups.lookup import MapLookup
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.routing.archived import ArchivedTopic
from ingress.routing.succession import ArchivedIncarnation
from replicator.offsets import TranslatedOffset, TranslatedOffsets
from tests.fakes.surroundings import T0, FailingStore, HandClock
from tests.ingress.world import source_settings

HERE = TopicPartition("orders", 0)
HOUR = timedelta(hours=1)


class Snapshots:
    """Of one group, whose offsets are those here."""

    def __init__(self) -> None:
        self.objects = FailingStore(HandClock())
        self.generations = Generations(self.objects, groups_prefix("data", "us"))
        self.problems: list[str] = []

    def put(self, offset: int, at: datetime, *, read_at: datetime | None = None) -> None:
        """`read_at`: its offsets could not be read since."""
        commits = TopicCommits.of("", {0: CommittedOffset(next_offset=offset)})
        if read_at is not None:
            commits = replace(commits, as_of=read_at)
        group = SnapshotGroup(kind="classic", state="empty", members=0, topics={"orders": commits})
        unreadable = {} if read_at is None else {"g": "no coordinator"}
        found = GroupSnapshot(cluster_id="c", writer="w", observed_at=at, groups={"g": group}, unreadable=unreadable)
        assert self.generations.put(self.generations.newest() + 1, encode_group_snapshot(found))

    def found(self, at: datetime | None = None) -> Sequence[TranslatedOffset]:
        config = SimpleNamespace(s3=SimpleNamespace(prefix="data"))
        clients: Any = SimpleNamespace(objects=self.objects, config=config)
        key = CheckpointKey(SourcePartition("us", "orders", 0), HERE.topic)
        route = ArchivedTopic(
            region="us",
            incarnations=[ArchivedIncarnation(incarnation=Incarnation("orders"))],
            settings=source_settings("orders", HERE.topic, region="us"),
        )
        translated = TranslatedOffsets(
            clients=clients,
            region="us",
            routes={HERE.topic: [route]},
            lookup=MapLookup(
                maps={},
                positions={key: Checkpoint(99, "", T0)},
                ends={HERE: LogEnds(low=0, stable=99, high=99)},
                topic_ids={},
                preserved=frozenset({HERE.topic}),
            ),
            topic_ids=ClaimedTopicIds(ControlStore(self.objects, "data")),
        )
        self.problems.clear()
        return translated.of_group("g", at, on_problem=self.problems.append)


@pytest.fixture
def stored() -> Snapshots:
    return Snapshots()


def test_offsets_that_were_read_with_the_snapshot_need_no_word(stored: Snapshots) -> None:
    stored.put(5, T0)
    for at in (None, T0 + HOUR):
        assert [one.target_offset for one in stored.found(at)] == [5]
        assert stored.problems == []


def test_offsets_of_an_earlier_time_are_named(stored: Snapshots) -> None:
    """They were shown, and committed, as those of now."""
    stored.put(5, T0 + HOUR, read_at=T0)
    for at in (None, T0 + 2 * HOUR):
        assert [one.target_offset for one in stored.found(at)] == [5]
        [problem] = stored.problems
        assert problem == f"its offsets are those of {T0.isoformat(timespec='seconds')}: no coordinator"


def test_a_newer_snapshot_that_cannot_be_read_is_named(stored: Snapshots) -> None:
    stored.put(5, T0)
    assert stored.generations.put(2, b"of a newer program")
    for at in (None, T0 + HOUR):
        assert [one.target_offset for one in stored.found(at)] == [5]
        [problem] = stored.problems
        assert "00000002" in problem
