"""What is taken from a queue that the doctor searches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from botocore.stub import Stubber

from infra.storage.aws import AwsCredentials
from infra.storage.queue_setup import BRIEFLY_HIDDEN_SECONDS, SqsQueueSetup
from infra.storage.sqs import make_sqs_client

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

URL = "http://queue/ours"


@pytest.fixture
def client() -> Iterator[SQSClient]:
    keys = AwsCredentials(access_key_id="a", secret_access_key="s")
    with closing(make_sqs_client(endpoint_url="http://queue", region_name="us-east-1", credentials=keys)) as made:
        yield made


def received(stub: Stubber, *bodies: str) -> None:
    asked = {
        "QueueUrl": URL,
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": 0,
        "VisibilityTimeout": BRIEFLY_HIDDEN_SECONDS,
        "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
    }
    messages = [{"MessageId": body, "ReceiptHandle": f"handle of {body}", "Body": body} for body in bodies]
    stub.add_response("receive_message", {"Messages": messages}, asked)


def test_of_the_messages_with_a_text_only_those_that_hold_nothing_else_are_removed(client: SQSClient) -> None:
    with Stubber(client) as stub:
        received(stub, "probe", "probe and segment", "segment")
        entries = [{"Id": "0", "ReceiptHandle": "handle of probe"}]
        stub.add_response(
            "delete_message_batch", {"Successful": [], "Failed": []}, {"QueueUrl": URL, "Entries": entries}
        )
        queue = SqsQueueSetup(client, URL)
        assert queue.find("probe", max_receive_count=10, wait=timedelta(), removes=lambda body: body == "probe") is True
        received(stub, "probe and segment")
        assert queue.find("probe", max_receive_count=10, wait=timedelta(), removes=lambda _: False) is True
        stub.assert_no_pending_responses()
