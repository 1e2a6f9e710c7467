"""A queue between a webhook of S3 events and a client of SQS: elsewhere, S3's notifications and SQS.

    python -m bench.queue_bridge PORT

POST /events     one event, from the S3 server: a message of the queue
POST /           SQS, as far as a reader of one queue needs it: GetQueueUrl, ReceiveMessage, DeleteMessageBatch
GET  /measured   what was counted since the last such request, as JSON; see `BridgeQueue.measured`

A message is handed out once, and is not visible again after a time: a reader that dies loses it. `BridgeQueue` is the
state, without I/O but for waking its readers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST = 10  # messages of one ReceiveMessage, as in SQS
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n"
PROBE = "probe/"  # begins the keys of objects that only measure the way to this process


@dataclass(slots=True)
class BridgeQueue:
    """Messages, and how long each waited here."""

    waiting: deque[tuple[str, float]] = field(default_factory=deque)  # body, epoch seconds of its arrival
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0  # of SQS, which charges each
    delays: list[float] = field(default_factory=list)  # seconds from the arrival to the answer that holds the message
    probes: dict[str, float] = field(default_factory=dict)  # epoch seconds of their arrival, by key
    _number: int = 0

    def event(self, body: str, now: float) -> None:
        found = json.loads(body)
        if "Records" not in found:
            return  # of the server's own test
        key = found["Records"][0]["s3"]["object"]["key"]
        if key.startswith(PROBE):
            self.probes[key] = now
            return
        self.waiting.append((body, now))
        self.arrived.set()

    def take(self, count: int, now: float) -> list[dict[str, Any]]:
        """Messages in the form of SQS, the oldest first; they are gone from here."""
        taken: list[dict[str, Any]] = []
        while self.waiting and len(taken) < min(count, MOST):
            body, at = self.waiting.popleft()
            self._number += 1
            self.delays.append(now - at)
            taken.append(
                {
                    "MessageId": str(self._number),
                    "ReceiptHandle": str(self._number),
                    "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
                    "Body": body,
                    "Attributes": {"SentTimestamp": str(int(at * 1000))},
                }
            )
        if not self.waiting:
            self.arrived.clear()
        return taken

    def measured(self) -> dict[str, Any]:
        """`requests` of SQS, `delays` of each message in seconds, `probes`; all begin anew."""
        found = {"requests": self.requests, "delays": self.delays, "probes": self.probes}
        self.requests, self.delays, self.probes = 0, [], {}
        return found

    async def answer(self, action: str, asked: Mapping[str, Any], url: str) -> dict[str, Any]:
        """Raises ValueError for an action that is not one of these."""
        self.requests += 1
        match action:
            case "GetQueueUrl":
                return {"QueueUrl": f"{url}/{asked['QueueName']}"}
            case "ReceiveMessage":
                if not self.waiting:
                    try:
                        await asyncio.wait_for(self.arrived.wait(), asked.get("WaitTimeSeconds", 0) or 0.001)
                    except TimeoutError:
                        return {}
                return {"Messages": self.take(asked.get("MaxNumberOfMessages", 1), time.time())}
            case "DeleteMessageBatch":
                return {"Successful": [{"Id": one["Id"]} for one in asked["Entries"]], "Failed": []}
            case _:
                raise ValueError(f"{action}: not an action of this queue")


async def serve(port: int) -> None:
    queue = BridgeQueue()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _request(reader)) is not None:
                method, path, headers, body = request
                answer: dict[str, Any] | None = None
                if path == "/events":
                    queue.event(body.decode(), time.time())
                elif method == "GET":
                    answer = queue.measured()
                else:
                    action = headers.get("x-amz-target", "").rpartition(".")[2]
                    answer = await queue.answer(action, json.loads(body or b"{}"), f"http://127.0.0.1:{port}")
                text = b"" if answer is None else json.dumps(answer).encode()
                writer.write(HEAD.format(len(text)).encode() + text)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, Mapping[str, str], bytes] | None:
    """Method, path, headers in lower case, body; None at the end of the connection."""
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode("latin-1").split()
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
