"""The bench's queue speaks SQS well enough for ours, and measures what it adds."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from bench.child import ROOT
from bench.queue_bridge import MOST, PROBE, BridgeQueue
from infra.local.aws import CREDENTIALS
from infra.local.ports import HOST, free_ports, listens
from infra.local.waiting import wait_until
from infra.storage.aws import AwsCredentials
from infra.storage.sqs import SqsQueue, make_sqs_client


def event(key: str) -> str:
    return json.dumps({"Records": [{"eventName": "s3:ObjectCreated:Put", "s3": {"object": {"key": key}}}]})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    (port,) = free_ports(1)
    process = subprocess.Popen([sys.executable, "-m", "bench.queue_bridge", str(port)], cwd=ROOT)
    try:
        assert wait_until(lambda: listens(port), timedelta(seconds=30))
        yield port
    finally:
        process.terminate()
        process.wait(10)


def asked(port: int, method: str, path: str, body: str = "") -> bytes:
    with closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        assert answer.status == http.client.OK
        return answer.read()


def test_our_own_client_receives_and_deletes_what_the_webhook_sent(port: int) -> None:
    keys = [f"data/a/t/0/0/{n}-{n}" for n in range(MOST + 1)]
    asked(port, "POST", "/events", json.dumps({"Event": "s3:TestEvent"}))
    for key in keys:
        asked(port, "POST", "/events", event(key))
    credentials = AwsCredentials(
        access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
    )
    url = f"http://{HOST}:{port}"
    client = make_sqs_client(endpoint_url=url, region_name=CREDENTIALS["region_name"], credentials=credentials)
    with closing(client):
        queue = SqsQueue(client, "events")
        messages = [*queue.receive(timedelta(seconds=1)), *queue.receive(timedelta(seconds=1))]
        assert [json.loads(one.body)["Records"][0]["s3"]["object"]["key"] for one in messages] == keys
        assert all(one.sent_at is not None for one in messages)
        queue.delete(messages)
        assert queue.receive(timedelta(0)) == []
    found = json.loads(asked(port, "GET", "/measured"))
    assert len(found["delays"]) == len(keys)
    assert found["requests"] == 6  # the queue's URL, three receives, and two deletes of ten at most
    assert json.loads(asked(port, "GET", "/measured")) == {"requests": 0, "delays": [], "probes": {}}


def test_a_delay_is_from_the_arrival_until_it_is_handed_out() -> None:
    queue = BridgeQueue()
    queue.event(event("data/one"), 10.0)
    queue.event(event("data/two"), 11.0)
    assert [one["Attributes"]["SentTimestamp"] for one in queue.take(1, 12.5)] == ["10000"]
    queue.take(10, 12.5)
    assert queue.measured()["delays"] == [2.5, 1.5]


def test_a_probe_is_measured_and_not_a_message() -> None:
    queue = BridgeQueue()
    queue.event(event(f"{PROBE}0"), 10.0)
    assert queue.take(10, 11.0) == []
    assert queue.measured()["probes"] == {f"{PROBE}0": 10.0}
