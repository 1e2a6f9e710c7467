"""A bucket that the test fills itself, object by object, as replication would; and what became of it in region b.

planted = opened.enter_context(Planted(site))
planted.put(0, 99)                      a segment whose every record has its own source offset as the key
planted.begin(0)                        where the archive begins
planted.offsets()                       source offsets in the target so far, in the order of a consumer
"""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from formats.control.archive_begin import ArchiveBegin, encode_begin
from formats.control.claim import TopicClaim, encode_topic_claim
from formats.control.keys import begin_key, claim_key
from formats.footer import SegmentOrigin
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.local.aws import s3_client
from tests.ingress.world import FORMAT, records
from tests.processes.harness import PREFIX, A, B
from tests.processes.judge import Reader

if TYPE_CHECKING:
    from typing import Self

    from tests.processes.harness import Site, Tables, Worker

TOPIC_ID = "OwnTopicIdOfTheSource0"


class Planted:
    """One partition of one topic in the site's bucket. A context manager: its processes and readers end with it."""

    def __init__(self, site: Site, word: str = "t") -> None:
        self.site = site
        self.source = SourcePartition(A, f"{site.name}.{word}", 0)
        self.target = f"{self.source.topic}.ingress"
        self._s3 = s3_client(site.stack.moto.endpoint_url)
        self._reader: Reader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.site.workers:
            worker.end()
        if self._reader is not None:
            self._reader.close()
        self._s3.close()

    def put(self, start: int, end: int, *, topic_id: str = "") -> str:
        """Its key."""
        segment, sink = Segment(self.source, 0, OffsetRange(start, end)), BytesIO()
        writer = FORMAT.create(sink)
        writer.write([records(range(start, end + 1))])
        origin = SegmentOrigin(created_at=_now(), writer="test", source_partition_count=1, topic_id=topic_id)
        writer.close(segment, origin)
        key = format_key(PREFIX, segment)
        self._put(key, sink.getvalue())
        return key

    def begin(self, offset: int) -> None:
        begin = ArchiveBegin(offset=offset, reason="test", recorded_at=_now())
        self._put(begin_key(PREFIX, self.source), encode_begin(begin))

    def claim(self, topic_id: str = TOPIC_ID) -> None:
        place = TopicClaim(topic_id=topic_id, cluster_id="source", number=0, claimed_at=_now())
        self._put(claim_key(PREFIX, A, self.source.path), encode_topic_claim(place))

    def remove(self, key: str) -> None:
        self._s3.delete_object(Bucket=self.site.bucket, Key=key)

    def _put(self, key: str, body: bytes) -> None:
        self._s3.put_object(Bucket=self.site.bucket, Key=key, Body=body)

    def ingress(self, name: str, *, endpoint_url: str = "", source: Tables | None = None, **ingress: Any) -> Worker:
        """Not started."""
        return self.site.ingress(
            name, {"topic": self.source.topic, **(source or {})}, endpoint_url=endpoint_url, **ingress
        )

    def offsets(self) -> list[int]:
        """Of records of the archive; others in the target are left out."""
        if self._reader is None:
            if not self._is_there():
                return []
            self._reader = Reader(self.site.bootstrap(B), self.target, 1, isolation="read_committed")
        self._reader.read()
        keys = [record.key or b"" for record in self._reader.logs()[0].records]
        return [int(key) for key in keys if key.isdigit()]

    def wait_for(self, *ranges: tuple[int, int]) -> None:
        """Until these source offsets were delivered, in this order, and nothing else."""
        wanted = [offset for start, end in ranges for offset in range(start, end + 1)]
        self.site.wait(f"{ranges} in {self.target}", lambda: len(self.offsets()) >= len(wanted))
        assert self.offsets() == wanted

    def _is_there(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.site.bootstrap(B), "log_level": 0})
        try:
            return self.target in admin.list_topics(timeout=5).topics
        except KafkaException:
            return False


def _now() -> datetime:
    return datetime.now(UTC)
