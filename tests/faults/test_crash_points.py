"""kill -9 at every durable step, before and after it, while records flow: started again, nothing is lost or doubled."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from formats.control.archive_begin import ArchiveBegin, encode_begin
from formats.control.keys import begin_key
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.local.aws import s3_client
from infra.runtime.crash_points import Step
from tests.faults.crash_points import (
    BACKFILL_EARLIER,
    COMPACT,
    ELSEWHERE,
    FORK,
    GC,
    KEEPING,
    MOMENT,
    PRESERVE,
    PRESERVE_PREFIX,
    PURGE,
    RESTORE,
    SYNC,
    WAYS,
    Scene,
    Side,
    Way,
    made,
)
from tests.faults.hand import Hand, hand, member
from tests.faults.rig import Rig, stop
from tests.faults.schedule import TRANSACTION, Membership
from tests.faults.victim import WHENS, CrashPoint
from tests.processes.harness import PREFIX, A, B
from tests.processes.traffic import BIG_BYTES, EPOCH_MS, Draft, create_topic, produce_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.harness import Site, Tables

SAMPLE = {  # what `make test` has time for
    "after commit-transaction",
}
BIG: Tables = {"max_segment_size": "14MiB", "max_segment_age": "3s", "max_segment_messages": 100_000}
SMALL, LARGE = 100_000, 2_000_000  # bytes that the target takes as one batch
LITTLE: Tables = {"s3": {"part_size": "5MiB"}, "memory_budget": "16MiB"}


def points() -> list[object]:
    named = [CrashPoint(step=step, when=when, occurrence=WAYS[step].occurrence) for step in WAYS for when in WHENS]
    return [
        pytest.param(point, id=point.name.replace(" ", "-"), marks=() if point.name in SAMPLE else pytest.mark.long)
        for point in named
        if point.step in made()
    ]


def test_every_step_has_a_way() -> None:
    known = {*WAYS, *COMPACT, *GC, *RESTORE, *PURGE, *MOMENT, *KEEPING, *SYNC, *FORK, *PRESERVE}
    known |= {*PRESERVE_PREFIX, *BACKFILL_EARLIER, *ELSEWHERE}
    assert {step: where for step, where in made().items() if step not in known} == {}


def test_a_crash_point_survives_its_text() -> None:
    point = CrashPoint(step=Step.PUT_PART, when="after", occurrence=3)
    assert CrashPoint.parse(str(point)) == point


@pytest.mark.integration
@pytest.mark.parametrize("point", points())
def test_killed_at(site: Site, point: CrashPoint) -> None:
    way = WAYS[point.step]
    with Rig(site, seed=sum(map(ord, point.name))) as rig:
        egress, ingress = pair(site, rig, way)
        if way.scene is Scene.REFUSED:
            create_topic(site.bootstrap(B), rig.flow.target, rig.flow.partitions)
            limit_records(site.bootstrap(B), rig.flow.target, SMALL)
            produce_all(site.bootstrap(A), rig.flow.topic, incompressible(1))
        victim, other = (egress, ingress) if way.side is Side.EGRESS else (ingress, egress)
        rig.traffic()
        missing = None
        if way.scene is Scene.LATE:
            other.start()
            missing = hidden(site, rig)
        victim.start(point)
        other.start()
        if way.scene is Scene.BIG:
            produce_all(site.bootstrap(A), rig.flow.topic, incompressible(20))
        site.wait(f"{victim.name} gets to {point.name}", lambda: rig.crashed(victim))
        if way.scene is Scene.REFUSED:
            limit_records(site.bootstrap(B), rig.flow.target, LARGE)
        if missing is not None:
            missing()
        victim.start()
        rig.drain()
        stop([ingress, egress])
        rig.judge()
        assert rig.tally.honest, f"nothing was on its way: {rig.tally}"
    print(dict(rig.tally.faults))


def pair(site: Site, rig: Rig, way: Way) -> tuple[Hand, Hand]:
    """Static members: the group gives a life's partitions to the next one at once."""
    big = way.scene is Scene.BIG
    stays = Membership(protocol="classic", static=True)
    egress = site.egress(
        "egress",
        {rig.flow.topic: BIG if big else {}},
        kafka={"consumer": member(stays, "egress")},
        **(LITTLE if big else {}),
    )
    ingress = site.ingress(
        "ingress",
        {"topic": rig.flow.topic},
        kafka={"consumer": member(stays, "ingress")},
        transaction_timeout=TRANSACTION,
    )
    return hand(site, egress), hand(site, ingress)


def hidden(site: Site, rig: Rig) -> Callable[[], None]:
    """Takes the first segment of a partition away, though the archive says that it begins there; call the answer to put
    it back."""
    source = SourcePartition(A, rig.flow.topic, 0)
    site.wait("two segments", lambda: len(site.ranges(rig.flow.topic).get(0, ())) > 1)
    start, end = min(site.ranges(rig.flow.topic)[0])
    key = format_key(PREFIX, Segment(source, 0, OffsetRange(start, end)))
    begin = ArchiveBegin(offset=start, reason="test", recorded_at=datetime.now(UTC))
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        body = s3.get_object(Bucket=site.bucket, Key=key)["Body"].read()
        s3.delete_object(Bucket=site.bucket, Key=key)
        s3.put_object(Bucket=site.bucket, Key=begin_key(PREFIX, source), Body=encode_begin(begin))

    def put_back() -> None:
        with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
            s3.put_object(Bucket=site.bucket, Key=key, Body=body)

    return put_back


def limit_records(bootstrap: str, topic: str, size_bytes: int) -> None:
    """What the topic takes, from now on."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    entry = ConfigEntry("max.message.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def incompressible(count: int) -> list[Draft]:
    """For partition 0."""
    random = Random(count)
    return [Draft(0, b"big-%d" % n, random.randbytes(BIG_BYTES), (), EPOCH_MS + n) for n in range(count)]
