"""The notification queue on SQS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError

from formats.errors import QueueUnavailable
from formats.messages.segment_events import QueueMessage
from formats.records.milliseconds import known_time_of_ms
from infra.storage.aws import (
    ASSUME_ROLE,
    ATTEMPTS,
    CONNECT_TIMEOUT,
    FAILURES,
    READ_TIMEOUT,
    AwsCredentials,
    advice_on_credentials,
    client_config,
    describe_error,
    error_code,
    status,
)
from infra.storage.clients import create_client

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_sqs.literals import MessageSystemAttributeNameType

BATCH = 10  # SQS's limit
MAX_WAIT = timedelta(seconds=20)  # SQS's limit

_ABSENT = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
PERMISSIONS = {
    "GetQueueUrl": "sqs:GetQueueUrl",
    "GetQueueAttributes": "sqs:GetQueueAttributes",
    "ReceiveMessage": "sqs:ReceiveMessage",
    "DeleteMessageBatch": "sqs:DeleteMessage",
}


def make_sqs_client(
    *,
    endpoint_url: str | None = None,
    region_name: str | None = None,
    credentials: AwsCredentials | None = None,
    session: boto3.Session | None = None,
    max_pool_connections: int = 10,
    connect_timeout: timedelta = CONNECT_TIMEOUT,
    read_timeout: timedelta = READ_TIMEOUT,
    attempts: int = ATTEMPTS,
) -> SQSClient:
    """A client for `SqsQueue`; the caller closes it. `read_timeout` must be longer than the longest wait. `session`: of
    the program around us. Raises ConfigError when the settings, or the AWS profile, are invalid."""
    config = client_config(
        max_pool_connections=max_pool_connections,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        attempts=attempts,
    )
    client = create_client(
        "sqs",
        endpoint_url=endpoint_url,
        region_name=region_name,
        credentials=credentials,
        session=session,
        config=config,
    )
    return cast("SQSClient", client)


class SqsQueue:
    """A `NotificationQueue`. The queue's own configuration sets how often a message is redelivered before it moves to
    the dead-letter queue, and after how long without a delete (visibility timeout)."""

    def __init__(self, client: SQSClient, queue: str) -> None:
        """`queue`: a name or a queue URL."""
        self._client = client
        self._queue = queue
        self._url = queue if queue.startswith(("http://", "https://")) else ""

    def __repr__(self) -> str:
        return f"SqsQueue({self._queue!r})"

    def receive(self, wait: timedelta) -> Sequence[QueueMessage]:
        """Waits 20 s at most, in whole seconds."""
        seconds = int(min(max(wait, timedelta()), MAX_WAIT).total_seconds())
        url = self._found_url()
        with self._translated("ReceiveMessage"):
            answer = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=BATCH,
                WaitTimeSeconds=seconds,
                MessageSystemAttributeNames=["SentTimestamp"],
            )
        return [
            QueueMessage(
                message_id=one["MessageId"],
                receipt=one["ReceiptHandle"],
                body=one.get("Body", ""),
                sent_at=_sent_at(one.get("Attributes", {})),
            )
            for one in answer.get("Messages", ())
        ]

    def delete(self, messages: Iterable[QueueMessage]) -> None:
        """Tries all messages, also after a failed one; then raises QueueUnavailable with the failed ones."""
        left = iter(messages)
        refused: list[str] = []
        while batch := list(islice(left, BATCH)):
            refused += self._delete_batch(batch)
        if refused:
            raise QueueUnavailable(f"DeleteMessageBatch {self._queue}: {len(refused)} refused: {', '.join(refused)}")

    def _delete_batch(self, batch: Sequence[QueueMessage]) -> list[str]:
        url = self._found_url()
        with self._translated("DeleteMessageBatch"):
            answer = self._client.delete_message_batch(
                QueueUrl=url,
                # by index: a message received twice has one id and two receipts
                Entries=[{"Id": str(i), "ReceiptHandle": message.receipt} for i, message in enumerate(batch)],
            )
        return [f"{batch[int(one['Id'])].message_id} ({one['Code']})" for one in answer.get("Failed", ())]

    def _found_url(self) -> str:
        """The queue's URL, looked up once. Two threads may look it up at the same time, with the same result."""
        if not self._url:
            with self._translated("GetQueueUrl"):
                self._url = self._client.get_queue_url(QueueName=self._queue)["QueueUrl"]
        return self._url

    def _translated(self, operation: str) -> AbstractContextManager[None]:
        return translated_queue_error(operation, self._queue)


@contextmanager
def translated_queue_error(operation: str, queue: str) -> Iterator[None]:
    """Translate boto3's errors to ours. `operation`: name of the SQS API operation."""
    try:
        yield
    except FAILURES as error:
        advice = _advice(error, operation)
        message = f"{operation} {queue}: {describe_error(error)}" + (f"; {advice}" if advice else "")
        raise QueueUnavailable(message) from error


def _advice(error: Exception, operation: str) -> str:
    if advice := advice_on_credentials(error):
        return advice
    if not isinstance(error, ClientError) or error.operation_name == ASSUME_ROLE:
        return ""
    if error_code(error) in _ABSENT:
        return "the queue does not exist: create it, or correct its name, region or endpoint"
    if status(error) == 403:
        return f"allow {PERMISSIONS[operation]} on the queue to these credentials, or repair them"
    return ""


def _sent_at(attributes: Mapping[MessageSystemAttributeNameType, str]) -> datetime | None:
    """None for a server that is not SQS and sends no such attribute."""
    sent = attributes.get("SentTimestamp", "")
    return known_time_of_ms(int(sent)) if sent.isascii() and sent.isdigit() else None
