"""A broker whose metadata has no live broker, not even itself, like that of a single broker that has just started.

It answers only ApiVersions and Metadata (version 12). `python -m tests.infra.forged_broker` requests the cluster's id
twice through KafkaAdmin, before and after the broker has dropped itself from its metadata.
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from formats.errors import BrokerUnavailable
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.ports import HOST

METADATA, API_VERSIONS = 3, 18
VERSIONS = {METADATA: (0, 12), API_VERSIONS: (0, 3), 1: (4, 16), 2: (1, 8), 10: (0, 4), 19: (0, 7), 37: (0, 3)}
NODE_ID, CLUSTER_ID = 1, "cluster"
NOTHING = b"\0"  # no tagged fields


class ForgedBroker(socketserver.ThreadingTCPServer):
    """Listens on a free port once it is created."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Connection)
        self.knows_itself = True

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def metadata(self) -> bytes:
        itself = struct.pack(">i", NODE_ID) + _string(HOST) + struct.pack(">i", self.port) + NOTHING + NOTHING
        brokers = _count(1) + itself if self.knows_itself else _count(0)
        rest = _string(CLUSTER_ID) + struct.pack(">i", NODE_ID) + _count(0) + NOTHING
        return NOTHING + struct.pack(">i", 0) + brokers + rest


class _Connection(socketserver.StreamRequestHandler):
    server: ForgedBroker

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(*struct.unpack(">i", size))
            api, _, correlation = struct.unpack_from(">hhi", request)
            if api == API_VERSIONS:
                keys = b"".join(struct.pack(">hhh", key, *range_) + NOTHING for key, range_ in VERSIONS.items())
                body = struct.pack(">h", 0) + _count(len(VERSIONS)) + keys + struct.pack(">i", 0) + NOTHING
            elif api == METADATA:
                body = self.server.metadata()
            else:
                return
            answer = struct.pack(">i", correlation) + body
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


def _count(number: int) -> bytes:
    """Length of a compact array, or of a compact string in bytes."""
    return bytes([number + 1])


def _string(text: str) -> bytes:
    return _count(len(text)) + text.encode()


@contextmanager
def forged_broker() -> Iterator[ForgedBroker]:
    with ForgedBroker() as broker:
        serving = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            serving.join()


def main() -> None:
    with forged_broker() as broker:
        admin = KafkaAdmin({"bootstrap.servers": f"{HOST}:{broker.port}"}, timeout=timedelta(seconds=5))
        assert admin.cluster_id() == CLUSTER_ID
        broker.knows_itself = False
        try:
            admin.cluster_id()
        except BrokerUnavailable as error:
            print(error)


if __name__ == "__main__":
    main()
