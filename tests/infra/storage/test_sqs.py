from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

from formats.errors import QueueUnavailable
from formats.messages.s3_notifications import parse
from formats.messages.segment_events import Created, QueueMessage, Removed
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.segments import SegmentStore
from infra.local.aws import CREDENTIALS, create_bucket_with_queue
from infra.storage.aws import AwsCredentials
from infra.storage.s3 import S3ObjectStore, make_s3_client
from infra.storage.sqs import SqsQueue, make_sqs_client

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

    from infra.local.stack import LocalStack

KEYS = AwsCredentials(
    access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
)
REGION = CREDENTIALS["region_name"]
NOW = timedelta()


@pytest.fixture
def client(stack: LocalStack) -> Iterator[SQSClient]:
    url = stack.moto.endpoint_url
    with closing(make_sqs_client(endpoint_url=url, region_name=REGION, credentials=KEYS, attempts=1)) as client:
        yield client


@pytest.fixture
def url(client: SQSClient, unique: Callable[[str], str]) -> str:
    return client.create_queue(QueueName=unique("queue"))["QueueUrl"]


def drain(queue: SqsQueue) -> list[QueueMessage]:
    messages: list[QueueMessage] = []
    while batch := queue.receive(NOW):
        messages += batch
    return messages


@pytest.mark.integration
class TestOnMoto:
    @pytest.mark.parametrize("by", ["name", "url"])
    def test_messages_are_received_and_deleted(self, client: SQSClient, url: str, by: str) -> None:
        queue = SqsQueue(client, url if by == "url" else url.rpartition("/")[2])
        for number in range(25):
            client.send_message(QueueUrl=url, MessageBody=f"body {number}")
        messages = drain(queue)
        assert sorted(message.body for message in messages) == sorted(f"body {number}" for number in range(25))
        assert len({message.message_id for message in messages}) == 25
        queue.delete(messages)
        queue.delete(messages[:3])  # once more
        queue.delete([])
        left = client.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        )
        assert set(left["Attributes"].values()) == {"0"}

    def test_messages_say_when_they_were_sent(self, client: SQSClient, url: str) -> None:
        before = datetime.now(UTC)
        client.send_message(QueueUrl=url, MessageBody="body")
        (message,) = SqsQueue(client, url).receive(NOW)
        assert message.sent_at is not None
        assert abs(message.sent_at - before) < timedelta(minutes=1)

    def test_a_server_that_does_not_say_when(self, client: SQSClient, url: str) -> None:
        client.send_message(QueueUrl=url, MessageBody="body")

        def leave_out(parsed: Any, **_: Any) -> None:
            for one in parsed["Messages"]:
                del one["Attributes"]

        client.meta.events.register("after-call.sqs.ReceiveMessage", leave_out)
        (message,) = SqsQueue(client, url).receive(NOW)
        assert message.sent_at is None

    def test_ten_at_once(self, client: SQSClient, url: str) -> None:
        for number in range(12):
            client.send_message(QueueUrl=url, MessageBody=f"body {number}")
        assert [len(SqsQueue(client, url).receive(NOW)) for _ in range(3)] == [10, 2, 0]

    def test_an_undeleted_message_is_redelivered(self, client: SQSClient, url: str) -> None:
        client.send_message(QueueUrl=url, MessageBody="body")
        (first,) = SqsQueue(client, url).receive(NOW)
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=first.receipt, VisibilityTimeout=0)
        (again,) = SqsQueue(client, url).receive(NOW)
        assert again.message_id == first.message_id

    @pytest.mark.parametrize(
        ("wait", "asked"),
        [(-1.0, 0), (0.4, 0), (1.0, 1), (20.0, 20), (3600.0, 20)],
    )
    def test_waits_are_within_the_limits_of_sqs(self, client: SQSClient, url: str, wait: float, asked: int) -> None:
        sent: list[Any] = []
        client.meta.events.register(
            "provide-client-params.sqs.ReceiveMessage", lambda params, **_: sent.append(params["WaitTimeSeconds"])
        )
        client.send_message(QueueUrl=url, MessageBody="body")
        SqsQueue(client, url).receive(timedelta(seconds=wait))
        assert sent == [asked]

    def test_failed_deletes_are_named_and_the_others_succeed(self, client: SQSClient, url: str) -> None:
        for number in range(12):
            client.send_message(QueueUrl=url, MessageBody=f"body {number}")
        queue = SqsQueue(client, url)
        messages = drain(queue)
        bad = QueueMessage(message_id="bad-one", receipt="no such receipt", body="")
        with pytest.raises(QueueUnavailable, match=r"1 refused: bad-one \(ReceiptHandleIsInvalid\)"):
            queue.delete([bad, *messages])
        left = client.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])
        assert left["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"

    @pytest.mark.parametrize("by", ["name", "url"])
    def test_a_missing_queue_is_reported(self, client: SQSClient, url: str, by: str) -> None:
        missing = f"{url}-not" if by == "url" else "no-such-queue"
        queue = SqsQueue(client, missing)
        message = QueueMessage(message_id="m", receipt="r", body="")
        for call in (lambda: queue.receive(NOW), lambda: queue.delete([message])):
            with pytest.raises(QueueUnavailable, match=f"{missing}.*the queue does not exist"):
                call()

    def test_a_queue_created_later_is_found(self, client: SQSClient, unique: Callable[[str], str]) -> None:
        name = unique("later")
        queue = SqsQueue(client, name)
        with pytest.raises(QueueUnavailable):
            queue.receive(NOW)
        client.create_queue(QueueName=name)
        assert queue.receive(NOW) == []

    def test_the_stores_own_notifications_are_understood(
        self, stack: LocalStack, client: SQSClient, unique: Callable[[str], str]
    ) -> None:
        bucket = unique("bucket")
        queue = SqsQueue(
            client, create_bucket_with_queue(stack.moto.endpoint_url, bucket, unique("events"), "my data/")
        )
        s3 = make_s3_client(endpoint_url=stack.moto.endpoint_url, region_name=REGION, credentials=KEYS)
        with closing(s3):
            objects = S3ObjectStore(s3, bucket)
            store = SegmentStore(objects, "my data")
            segment = Segment(SourcePartition("eu-west-1", "a.b", 0, "AbC_-9"), 0, OffsetRange(0, 9))
            store.store(segment, BytesIO(b"12345"), 5)
            objects.put_new("my data/eu-west-1/_control/v1/x", BytesIO(b""), 0)
            objects.put_new("elsewhere", BytesIO(b""), 0)
            store.delete_many([segment])
        parsed = [parse(m.body, prefix="my data", regions={"eu-west-1"}, bucket=bucket) for m in drain(queue)]
        assert all(one.is_valid for one in parsed)
        assert sum(one.test_event for one in parsed) == 1
        assert sum(one.foreign for one in parsed) == 1
        created, removed = [event for one in parsed for event in one.events]
        assert isinstance(created, Created)
        assert (created.segment, created.info.size_bytes) == (segment, 5)
        assert isinstance(removed, Removed)
        assert removed.segment == segment
        assert removed.at >= created.info.stored_at


def test_no_server_listens() -> None:
    url = "http://127.0.0.1:1"
    with closing(make_sqs_client(endpoint_url=url, region_name=REGION, credentials=KEYS, attempts=1)) as client:
        for queue in (SqsQueue(client, "q"), SqsQueue(client, f"{url}/1/q")):
            with pytest.raises(QueueUnavailable, match="q: EndpointConnectionError"):
                queue.receive(NOW)
