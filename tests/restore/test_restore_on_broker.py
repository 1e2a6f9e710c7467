"""Restoring into a real cluster: any part of any history, stopped anywhere, is the brute-force answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from infra.local.aws import s3_client
from infra.local.stack import LocalStack
from infra.s3 import S3ObjectStore
from ingress.restore_plan import Objection
from ingress.restoring import Partition
from ingress.selection import Renaming, Selection
from replicator.config import Config, from_mapping
from replicator.lifecycle import Stop
from replicator.protocols import TopicPartition
from replicator.restore import Restore, Wishes
from replicator.topics import TopicPattern
from tests.fakes.kafka_target import target_records
from tests.formats.records import Row, batch_of
from tests.infra.cluster import Cluster
from tests.restore.history import PARTITIONS, REGION, Archive, Choice, archives, choices

pytestmark = pytest.mark.integration

NUMBERS = itertools.count()


class Place:
    """A bucket and a cluster to restore into."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        self.bucket, self.unique, self.stack = unique("bucket"), unique, stack
        self.client = s3_client(stack.moto.endpoint_url)
        self.client.create_bucket(Bucket=self.bucket)
        self.objects = S3ObjectStore(self.client, self.bucket)
        self.cluster = Cluster(stack.brokers["b"])

    @property
    def config(self) -> Config:
        return from_mapping(self.tables)

    @property
    def tables(self) -> dict[str, Any]:
        return {
            "region": REGION,
            "kafka": dict(self.cluster.properties),
            "s3": {
                "bucket": self.bucket,
                "endpoint_url": self.stack.moto.endpoint_url,
                "region_name": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "test",
            },
        }

    def restored(self, name: str, partition: int) -> list[Any]:
        return self.cluster.records(TopicPartition(name, partition))


@pytest.fixture
def place(stack: LocalStack, unique: Callable[[str], str]) -> Iterator[Place]:
    found = Place(stack, unique)
    yield found
    found.client.close()


def expected(rows: Sequence[Row]) -> list[Any]:
    return target_records(batch_of(list(rows))) if rows else []


def select(topic: str, name: str, choice: Choice) -> Selection:
    return Selection(
        region=REGION,
        topics=[TopicPattern(topic)],
        incarnation=choice.life,
        partitions=choice.partitions,
        offsets=choice.offsets,
        stamps=choice.stamps,
        renaming=Renaming({topic: name}),
    )


PASS = Wishes(accept=[Objection.MISSING])


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data())
def _check_any_history(place: Place, data: st.DataObject) -> None:
    archive: Archive = data.draw(archives())
    choice: Choice = data.draw(choices(archive))
    topic = f"t{next(NUMBERS)}"
    archive.write(place.objects, topic)
    name = place.unique("restored")
    stopped_after = data.draw(st.none() | st.integers(0, 3))
    if stopped_after is not None:
        stop = Stop()
        turns = itertools.count()

        def told(_: Sequence[Partition]) -> None:
            if next(turns) >= stopped_after:
                stop.set()

        with Restore(place.config, select(topic, name, choice), wishes=PASS, stop=stop) as restore:
            restore.run(restore.plan(), told)
    with Restore(place.config, select(topic, name, choice), wishes=PASS) as restore:
        plan = restore.plan()
        partitions = restore.run(plan)
    assert [p.failed for p in partitions] == [""] * len(partitions)
    answer = choice.answer(archive)
    for partition, rows in answer.items():
        assert place.restored(name, partition) == expected(rows), partition
    for partition in set(range(PARTITIONS)) - set(answer):
        assert place.restored(name, partition) == []


def test_any_part_of_any_history(place: Place) -> None:
    _check_any_history(place)
