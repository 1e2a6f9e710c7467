"""How a queue is set up, and whether a message with a certain text is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from infra.contracts.deployment import QueueSetup
from infra.storage.sqs import BATCH, translated_queue_error

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

BRIEFLY_HIDDEN_SECONDS = 5  # how long messages that were searched are hidden from others
_TOO_OFTEN = 2  # receives that are left to a message before it goes to the dead-letter queue


class SqsQueueSetup:
    """One queue. Thread safe, as the client is. Raises QueueUnavailable."""

    def __init__(self, client: SQSClient, queue: str) -> None:
        """`queue`: a name, a queue URL, or an ARN of a queue of the same account."""
        self._client = client
        self._queue = queue
        self._url = queue if queue.startswith(("http://", "https://")) else ""

    def read(self) -> QueueSetup:
        url = self._found_url()
        with translated_queue_error("GetQueueAttributes", self._queue):
            found = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        redrive = json.loads(found.get("RedrivePolicy") or "{}")
        hidden = int(found.get("ApproximateNumberOfMessagesNotVisible", "0"))
        return QueueSetup(
            arn=found.get("QueueArn", ""),
            policy=found.get("Policy", ""),
            visibility=timedelta(seconds=int(found.get("VisibilityTimeout", "30"))),
            retention=timedelta(seconds=int(found.get("MessageRetentionPeriod", "345600"))),
            dead_letter_arn=redrive.get("deadLetterTargetArn", ""),
            max_receive_count=int(redrive.get("maxReceiveCount", 0)),
            waiting=int(found.get("ApproximateNumberOfMessages", "0")) + hidden,
            kms_key_id=found.get("KmsMasterKeyId", ""),
        )

    def find(
        self, text: str, *, max_receive_count: int, wait: timedelta, removes: Callable[[str], bool]
    ) -> bool | None:
        """Whether a message with `text` in its body is among those of one receive; it is then removed, if `removes`
        says so of its body. The others are hidden for some seconds, and stay. None: some of them were received so often
        that one more time might move them to the dead-letter queue. For a queue that no process reads."""
        url = self._found_url()
        with translated_queue_error("ReceiveMessage", self._queue):
            found = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=BATCH,
                WaitTimeSeconds=int(wait.total_seconds()),
                VisibilityTimeout=BRIEFLY_HIDDEN_SECONDS,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            ).get("Messages", [])
        ours = [one for one in found if text in one.get("Body", "")]
        done = [one for one in ours if removes(one.get("Body", ""))]
        if done:
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(done)]
            with translated_queue_error("DeleteMessageBatch", self._queue):
                self._client.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]
        if ours:
            return True
        counts = [int(one.get("Attributes", {}).get("ApproximateReceiveCount", "1")) for one in found]
        is_worn = max_receive_count > 0 and any(count >= max_receive_count - _TOO_OFTEN for count in counts)
        return None if is_worn else False

    def _found_url(self) -> str:
        if not self._url:
            name = self._queue.rpartition(":")[2]
            with translated_queue_error("GetQueueUrl", self._queue):
                self._url = self._client.get_queue_url(QueueName=name)["QueueUrl"]
        return self._url
