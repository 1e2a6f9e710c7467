"""A command claims partitions on a real broker: no worker is assigned a claimed partition before the claim ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta

import pytest

from formats.errors import TargetError
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey
from formats.segment import SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.kafka.consumer.placement import KafkaPlacement
from infra.kafka.consumer.placement_claim import KafkaClaim
from infra.kafka.internal_topics.checkpoint_editor import KafkaCheckpointEditor
from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore
from infra.local.stack import LocalStack
from tests.fakes.surroundings import T0
from tests.infra.cluster import Cluster
from tests.infra.kafka.consumer.test_placement import PATIENCE, Owner, drive

pytestmark = pytest.mark.integration

SHORT = timedelta(seconds=4)  # longer than the first rebalance


class Group:
    """One group of workers on two partitions."""

    def __init__(self, cluster: Cluster, unique: Callable[[str], str], protocol: str, around: ExitStack) -> None:
        self.cluster, self.id, self._around = cluster, unique("group"), around
        self.partitions: Sequence[TopicPartition] = cluster.create(unique("copy"), 2)
        self.checkpoints = cluster.create(unique("checkpoints"), 1, {"cleanup.policy": "compact"})[0].topic
        self.properties = {str(k): str(v) for k, v in cluster.properties.items()} | {"group.protocol": protocol}

    def worker(self) -> tuple[KafkaPlacement, Owner]:
        owner, placement = Owner(), KafkaPlacement(self.properties, group_id=self.id)
        self._around.callback(placement.close, PATIENCE)
        placement.subscribe([self.partitions[0].topic], owner)
        return placement, owner

    def claim(self, within: timedelta = PATIENCE, **more: str) -> KafkaClaim:
        given = self.properties | {k.replace("_", "."): v for k, v in more.items()}
        return KafkaClaim(given, group_id=self.id, within=within)

    def editor(self) -> KafkaCheckpointEditor:
        editor = KafkaCheckpointEditor(self.properties, self.checkpoints)
        self._around.callback(editor.close)
        return editor

    def store(self) -> KafkaCheckpointStore:
        store = KafkaCheckpointStore(self.properties, self.checkpoints)
        self._around.callback(store.close)
        return store


@pytest.fixture(params=["classic", "consumer"])
def group(request: pytest.FixtureRequest, stack: LocalStack, unique: Callable[[str], str]) -> Iterator[Group]:
    with ExitStack() as around:
        yield Group(Cluster(stack.brokers["a"]), unique, request.param, around)


def test_a_worker_that_starts_during_a_claim_reads_the_seed(group: Group) -> None:
    key = CheckpointKey(SourcePartition("a", "t", 0), group.partitions[0].topic)
    seed = Checkpoint(5, "id", T0, Author.SEED)
    editor, store = group.editor(), group.store()
    worker: list[tuple[KafkaPlacement, Owner]] = []
    with group.claim().hold(group.partitions):
        placement, owner = group.worker()
        worker.append((placement, owner))
        turns = iter([False] * 20 + [True])
        drive(placement, until=lambda: next(turns))
        assert owner.owned == set()
        editor.seed(key, seed)
    ((placement, owner),) = worker
    drive(placement, until=lambda: owner.owned == set(group.partitions))
    placement.wait_until_settled(group.partitions)
    assert store.read() == {key: seed}


@pytest.mark.long
def test_a_worker_that_started_first_keeps_its_partitions(group: Group) -> None:
    placement, owner = group.worker()
    drive(placement, until=lambda: owner.owned == set(group.partitions))
    with (
        pytest.raises(TargetError, match=r"gave nothing of .* Stop it first"),
        group.claim(SHORT).hold(group.partitions),
    ):
        pytest.fail("somebody else has them")
    assert owner.owned == set(group.partitions)
