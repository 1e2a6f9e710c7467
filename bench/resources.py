"""Topics, bucket and queue of one benchmark run, and the configurations of its services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from infra.kafka.client.idempotent_producer import producer_properties
from infra.kafka.client.properties import source_properties
from infra.local.aws import CREDENTIALS, s3_client, sqs_client
from infra.storage.s3 import S3ObjectStore
from ingress.delivery.sizes import PRODUCER_BYTES
from replicator.config import from_mapping

REGION, BUCKET, QUEUE = "bench", "replicator-bench", "replicator-bench"
TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(1 << 30)}  # for old timestamps
ASK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResources:
    bootstrap: str
    endpoint_url: str
    run: str  # part of all names, so that two runs can share a stack
    queue_url: str = ""  # of the SQS server, when it is not the S3 server

    def prepare(self) -> None:
        """Create bucket and queue, without notifications: the measured work starts with a listing."""
        with closing(s3_client(self.endpoint_url)) as s3:
            s3.create_bucket(Bucket=self.bucket)
        with closing(sqs_client(self.queue_url or self.endpoint_url)) as sqs:
            sqs.create_queue(QueueName=self.queue)

    def clean(self) -> None:
        """Remove bucket and queue, with all objects."""
        self.empty("")
        with closing(s3_client(self.endpoint_url)) as s3:
            s3.delete_bucket(Bucket=self.bucket)
        with closing(sqs_client(self.queue_url or self.endpoint_url)) as sqs:
            sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=self.queue)["QueueUrl"])

    def empty(self, prefix: str) -> None:
        with closing(s3_client(self.endpoint_url)) as s3:
            empty(S3ObjectStore(s3, self.bucket), prefix)

    def stored_bytes(self, prefix: str) -> int:
        with closing(s3_client(self.endpoint_url)) as s3:
            return stored_bytes(S3ObjectStore(s3, self.bucket), prefix)

    @contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[str]:
        """A topic with a name of this run, deleted at the end of the block."""
        topic = f"{name}.{self.run}"
        self.create(topic, partitions)
        try:
            yield topic
        finally:
            self.drop(topic)

    def create(self, topic: str, partitions: int) -> None:
        """A topic of exactly this name."""
        new = NewTopic(topic, partitions, 1, config=TOPIC_CONFIG)
        admin = self._admin()  # kept until the answer is here
        admin.create_topics([new], request_timeout=ASK_SECONDS)[topic].result()

    def drop(self, *topics: str) -> None:
        """Delete those of `topics` that exist, to free their disk space."""
        admin = self._admin()
        present = admin.list_topics(timeout=ASK_SECONDS).topics
        gone = [topic for topic in topics if topic in present]
        for future in admin.delete_topics(gone, request_timeout=ASK_SECONDS).values() if gone else ():
            future.result()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 4})  # warnings

    @property
    def bucket(self) -> str:
        return f"{BUCKET}-{self.run}"

    @property
    def queue(self) -> str:
        return f"{QUEUE}-{self.run}"

    # --- configurations: the defaults, except for these settings ---

    def egress(self, topic: str, *, prefix: str, group: str, topic_settings: Mapping[str, object]) -> dict[str, Any]:
        return self._common(prefix) | {"egress": {"group_id": group, "topics": {topic: dict(topic_settings)}}}

    def ingress(self, topic: str, *, prefix: str, group: str, destination: str) -> dict[str, Any]:
        source = {"region": REGION, "topic": topic, "destination_topic": destination, "first_segment_delay": "0s"}
        return self._common(prefix) | {
            "sqs": self._aws() | self._queue_aws() | {"queue": self.queue, "wait": "1s"},
            "ingress": {
                "group_id": group,
                "segment_events_topic": f"{destination}.events",
                "replication_factor": 1,
                "checkpoint_topic": f"{destination}.checkpoint",
                "sources": [source],
            },
        }

    def archived(self, prefix: str) -> dict[str, Any]:
        """The configuration for restore and verify."""
        return self._common(prefix)

    def archive(self, prefix: str) -> SegmentStore:
        return SegmentStore(S3ObjectStore(s3_client(self.endpoint_url), self.bucket), prefix)

    def _common(self, prefix: str) -> dict[str, Any]:
        return {
            "region": REGION,
            "kafka": {"bootstrap.servers": self.bootstrap},
            "s3": self._aws() | {"bucket": self.bucket, "prefix": prefix},
        }

    def _queue_aws(self) -> dict[str, Any]:
        return {"endpoint_url": self.queue_url} if self.queue_url else {}

    def _aws(self) -> dict[str, Any]:
        return {
            "endpoint_url": self.endpoint_url,
            "access_key_id": CREDENTIALS["aws_access_key_id"],
            "secret_access_key": CREDENTIALS["aws_secret_access_key"],
            "region_name": CREDENTIALS["region_name"],
        }

    # --- properties of the bare clients: those of the services' clients ---

    def consumer_properties(self, topic: str) -> dict[str, Any]:
        """As `build_egress` derives them."""
        config = from_mapping(self.egress(topic, prefix="bare", group=f"{topic}.bare", topic_settings={}))
        assert config.egress is not None
        properties = source_properties(
            config.cluster.properties("consumer"),
            group_id=config.egress.group_id,
            isolation_level="read_committed",
            memory_bytes=config.egress.memory_budget // 4,
            brokers=3,
        )
        # the loop counts all messages: partition EOFs would be counted, too
        return properties | {"enable.partition.eof": "false"}

    def producer_properties(self) -> dict[str, Any]:
        """As `build_ingress` derives them."""
        return producer_properties({"bootstrap.servers": self.bootstrap}, memory_bytes=PRODUCER_BYTES)


def stored_bytes(objects: ObjectStore, prefix: str) -> int:
    return sum(info.size_bytes for info in objects.list(prefix))


def empty(objects: ObjectStore, prefix: str) -> None:
    objects.delete_many([info.key for info in objects.list(prefix)])
