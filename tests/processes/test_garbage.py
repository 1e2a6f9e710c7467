"""What does not belong is counted and named, and the rest flows."""

from __future__ import annotations

import json
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from infra.local.aws import s3_client, sqs_client
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, A, B
from tests.processes.traffic import EPOCH_MS, KEEPS_EVERYTHING, Draft, create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_sqs.client import SQSClient

    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration

SEED = 17
MALFORMED = 200
NEVER = "1h"


@pytest.fixture
def s3(site: Site) -> Iterator[S3Client]:
    with closing(s3_client(site.stack.moto.endpoint_url)) as client:
        yield client


@pytest.fixture
def sqs(site: Site) -> Iterator[SQSClient]:
    with closing(sqs_client(site.stack.moto.endpoint_url)) as client:
        yield client


def drafts(count: int, partitions: int, stamp_ms: int = EPOCH_MS) -> list[Draft]:
    return [Draft(n % partitions, b"k%d" % (n % 9), b"v%d" % n, (), stamp_ms + n) for n in range(count)]


def segment_key(topic: str, partition: int, start: int, end: int) -> str:
    return f"{PREFIX}/{A}/{topic}/{partition}/0/{start:020d}-{end:020d}"


# --- garbage ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_garbage_is_counted_and_named_and_the_rest_flows(site: Site, s3: S3Client, sqs: SQSClient) -> None:
    with Flow(site, "good", partitions=2) as good, Flow(site, "holed", partitions=1) as holed:
        holed_words = holed.produce(drafts(1500, 1))
        words = good.produce(drafts(1000, 2))
        topics = {good.topic: {"max_segment_messages": 200}, holed.topic: {"max_segment_messages": 300}}
        egress = site.egress("egress", topics).start()
        for flow in (good, holed):
            flow.wait_for_archive()
        bad = f"{site.name}.bad"
        wrong_footer = segment_key(bad, 0, 0, 199)
        copy(s3, site.bucket, segment_key(good.topic, 0, 0, 199), wrong_footer)
        unknown = segment_key(f"{site.name}.unknown", 0, 0, 199)
        copy(s3, site.bucket, segment_key(good.topic, 0, 0, 199), unknown)
        s3.delete_object(Bucket=site.bucket, Key=segment_key(holed.topic, 0, 300, 599))
        s3.delete_object(Bucket=site.bucket, Key=segment_key(holed.topic, 0, 900, 1199))
        site.planted.add(gap := f"{PREFIX}/{A}/_control/v1/gaps/{holed.topic}/0/{900:020d}-{1199:020d}")
        s3.put_object(Bucket=site.bucket, Key=gap, Body=b"{}")
        for tail in ("0/0/1-2", "0/0/readme.txt", f"00/0/{0:020d}-{9:020d}", f"0/0/{9:020d}-{0:020d}"):
            site.planted.add(key := f"{PREFIX}/{A}/{good.topic}/{tail}")
            s3.put_object(Bucket=site.bucket, Key=key, Body=b"?")
        for body in malformed_bodies(Random(SEED), MALFORMED):
            sqs.send_message(QueueUrl=site.queue_url, MessageBody=body)
        ingress = site.ingress(
            "ingress",
            {"topic": good.topic},
            {"topic": bad, "partitions": 1},
            {"topic": holed.topic, "on_lost": "skip", "lost_segment_timeout": "1s"},
        ).start()
        good.wait_for(words)
        holed.wait_for(holed_words)
        seen_all = lambda: ingress.metrics().value("malformed_notifications") >= MALFORMED + 4  # noqa: E731
        site.wait("all malformed messages", seen_all)
        site.wait("the wrong segment", lambda: ingress.metrics().value("corrupt_segments", topic=bad) > 0)
        shown, ready = ingress.metrics(), ingress.readiness()
        good.wait_for(good.produce(drafts(500, 2)))
        site.stop(egress, ingress)
        good.judge_target(rewinds=0)
    assert shown.value("malformed_notifications") == MALFORMED + 4
    assert shown.value("malformed_keys") > 0
    assert shown.value("foreign_notifications") > 0
    assert shown.value("late_segments", topic=holed.topic) == 1
    assert shown.value("lost_segments", topic=holed.topic) == 1
    assert shown.value("lost_offsets", topic=holed.topic) == 300
    assert shown.value("passed_gaps", topic=holed.topic) == 1
    assert shown.value("passed_offsets", topic=holed.topic) == 300
    assert shown.value("stopped_partitions") == 1
    assert f"{A}/{bad}/0" in ready["stopped"]
    named(ingress, "segment_lost", holed.topic)
    named(ingress, "partition_stopped", bad)
    assert len(ingress.logged("malformed_notification")) == MALFORMED + 4
    assert all(line.get("message_id") and line.get("reason") for line in ingress.logged("malformed_notification"))


def copy(s3: S3Client, bucket: str, key: str, other: str) -> None:
    s3.copy_object(Bucket=bucket, Key=other, CopySource={"Bucket": bucket, "Key": key})


def named(worker: Worker, event: str, topic: str) -> None:
    assert any(line.get("topic") == topic for line in worker.logged(event)), worker.explain(f"does not tell {event}")


def malformed_bodies(random: Random, count: int) -> Iterator[str]:
    """No two alike, and none says anything of a segment."""
    for number in range(count):
        mark = f"{number}"
        good_key = f"{PREFIX}/{A}/t/0/0/{0:020d}-{9:020d}"
        record: dict[str, Any] = {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-01-01T00:00:00Z",
            "s3": {"bucket": {"name": "b"}, "object": {"key": good_key, "size": 1}},
        }
        match number % 10:
            case 0:
                yield mark + "".join(random.choices('{}[]",:x', k=random.randint(0, 60)))
            case 1:
                yield json.dumps({"Records": mark})
            case 2:
                yield json.dumps({"Records": [mark, None, 5]})
            case 3:
                yield json.dumps({"Records": [{**record, "eventTime": mark}]})
            case 4:
                yield json.dumps({"Records": [{**record, "s3": {"object": {"key": good_key, "size": f"-{mark}"}}}]})
            case 5:
                yield json.dumps({"Records": [{**record, "s3": {"object": {"size": number}}}]})
            case 6:
                yield json.dumps({"Records": [{**record, "s3": {"object": {"key": "%FF" + mark, "size": 1}}}]})
            case 7:
                yield json.dumps({"Type": "Notification", "Message": f"not JSON {mark}"})
            case 8:
                yield "[" * 3000 + mark
            case _:
                yield json.dumps(record)[: random.randint(1, 60)] + mark


# --- notifications ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_notifications_doubled_reordered_and_lost(site: Site, s3: S3Client, sqs: SQSClient) -> None:
    """The relist timer is far away until the end, so that the notifications have to do."""
    with Flow(site, partitions=2) as flow:
        relayed = sqs.create_queue(QueueName=f"{site.name}-relayed")["QueueUrl"]
        first = flow.produce(drafts(400, 2))
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 50}}).start()
        flow.wait_for_archive()
        take_all(sqs, site.queue_url)
        ingress = site.ingress("ingress", {"topic": flow.topic}, queue=f"{site.name}-relayed", relist_interval=NEVER)
        ingress.start()
        flow.wait_for(first)
        second = flow.produce(drafts(1000, 2))
        flow.wait_for_archive()
        bodies = 2 * take_all(sqs, site.queue_url)
        Random(SEED).shuffle(bodies)
        for body in bodies:
            sqs.send_message(QueueUrl=relayed, MessageBody=body)
        flow.wait_for(second)
        assert ingress.metrics().value("relists", reason="timer") == 0
        ingress.stop()

        quick = site.ingress("ingress-quick", {"topic": flow.topic}, queue=f"{site.name}-relayed", relist_interval="2s")
        quick.start()
        site.wait("both partitions", lambda: quick.metrics().value("assigned_partitions") == 2)
        third = flow.produce(drafts(100, 2))
        flow.wait_for_archive()
        assert take_all(sqs, site.queue_url), "these are the notifications that get lost"
        flow.wait_for(third)
        assert quick.metrics().value("relists", reason="timer") > 0
        site.stop(egress, quick)
        flow.judge_target(rewinds=0)
        flow.judge_archive()


def take_all(sqs: SQSClient, queue_url: str) -> list[str]:
    """Bodies of every message; the queue is empty afterwards."""
    bodies: list[str] = []
    while messages := sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return bodies


# --- overlaps and stamps ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_overlapping_segments_and_stamps_that_the_target_refuses(make_site: Any) -> None:
    """Two egress groups archived the same topic with other cuts, one with a hole; the target takes no old stamps."""
    site, other = make_site("site"), make_site("other")
    with Flow(site, partitions=1) as flow, closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        words = flow.produce(drafts(1000, 1))
        ends = flow.ends()
        for place, cut in ((site, 300), (other, 170)):
            place.egress("egress", {flow.topic: {"max_segment_messages": cut}}).start()
        for place in (site, other):
            place.wait("an archive", lambda place=place: place.archived(flow.topic, ends))
            place.workers[0].stop()
        s3.delete_object(Bucket=site.bucket, Key=segment_key(flow.topic, 0, 300, 599))  # the other one has these
        for key in dict(other.keys()):
            s3.copy_object(Bucket=site.bucket, Key=key, CopySource={"Bucket": other.bucket, "Key": key})
        assert flow.overlaps()
        limits = {**KEEPS_EVERYTHING, "message.timestamp.before.max.ms": "3600000"}
        create_topic(site.bootstrap(B), flow.target, 1, limits)
        clamps = {"topic": flow.topic, "on_timestamp": "clamp"}
        ingress = site.ingress("ingress", clamps).start()
        site.wait("everything", lambda: flow.delivered() >= len(words) + 1000)
        shown = ingress.metrics()
        ingress.stop()
        target = flow.read_target()[0].records
        source = flow.source()[0].records
    assert [record[:3] for record in target] == [record[:3] for record in source]
    assert shown.value("altered_timestamps") == len(source)
    assert shown.value("skipped_records") > 0


def test_the_malformed_bodies_are_malformed() -> None:
    bodies: Sequence[str] = list(malformed_bodies(Random(SEED), MALFORMED))
    assert len(set(bodies)) == MALFORMED
