"""Clients of the commands: this region's cluster, bucket and checkpoint topic, each opened on first use."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from infra.archive.control import ControlStore
from infra.archive.proofs import ProofStore
from infra.archive.segments import SegmentStore
from replicator.services.command_logs import set_up_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from formats.errors import CheckpointConflict
    from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Parked, Skipped, Waiting
    from formats.messages.group_claim import GroupClaim
    from infra.archive.archive import Archive
    from infra.contracts.cluster import TopicPartition
    from infra.contracts.internal_topics import CheckpointEditor, CheckpointStore
    from infra.contracts.storage import ObjectStore
    from infra.kafka.cluster.admin import KafkaAdmin
    from infra.kafka.cluster.groups import KafkaGroups
    from infra.kafka.cluster.log_probe import KafkaLogProbe
    from ingress.groups.topic_ids import ClaimedTopicIds
    from replicator.config import Config, IngressSettings

THREADS = 16
ATTEMPTS = 6  # of a request, about five seconds: a user waits for the answer


class Clients:
    """A context manager that closes the opened clients at its end. For one thread."""

    def __init__(self, config: Config, *, with_logs: bool = True) -> None:
        """`with_logs`: set up those of this process, as a command does, and a library does not."""
        if with_logs:
            set_up_logs(config)
        self.config = config
        self._opened = ExitStack()

    def __enter__(self) -> Clients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def close_later(self, close: Callable[[], None]) -> None:
        """Call it at the end."""
        self._opened.callback(close)

    @property
    def ingress(self) -> IngressSettings:
        """Raises ConfigError when the file has none."""
        if self.config.ingress is None:
            raise self.config.without("ingress", "; this command needs the delivery settings")
        return self.config.ingress

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(THREADS, "ask")
        self._opened.callback(pool.shutdown, wait=False, cancel_futures=True)  # after an error the rest is not needed
        return pool

    @cached_property
    def objects(self) -> ObjectStore:
        from infra.runtime.lifecycle import Stop
        from infra.runtime.retry import RetryPolicy
        from infra.storage.retrying import RetryingObjectStore
        from replicator.services.encryption import KeyRetries, encrypted
        from replicator.services.wiring import s3_store

        store = s3_store(self.config.s3, THREADS, self._opened, once=True)
        stop, policy = Stop(), RetryPolicy(attempts=ATTEMPTS, raises_refusals=True)
        objects = RetryingObjectStore(store, stop=stop, policy=policy)
        retries = KeyRetries(stop, policy)
        return encrypted(objects, self.config.encryption, self.config.s3.prefix, retries, self._opened)

    def require_conditional_writes(self) -> None:
        """Check the bucket before this command puts objects there for its region. Raises ConfigError when the bucket
        lets objects be overwritten, and StoreUnavailable."""
        from infra.runtime.lifecycle import Stop
        from replicator.services.wiring import require_conditional_writes

        require_conditional_writes(self.config.s3, self.config.region, Stop())

    @cached_property
    def store(self) -> SegmentStore:
        return SegmentStore(self.objects, self.config.s3.prefix)

    @cached_property
    def control(self) -> ControlStore:
        return ControlStore(self.objects, self.config.s3.prefix)

    @cached_property
    def topic_ids(self) -> ClaimedTopicIds:
        """Of archive paths, each read once."""
        from ingress.groups.topic_ids import ClaimedTopicIds

        return ClaimedTopicIds(self.control)

    @cached_property
    def proofs(self) -> ProofStore:
        return ProofStore(self.objects, self.config.s3.prefix, self.config.region)

    @cached_property
    def archive(self) -> Archive:
        """For commands that read segments."""
        from replicator.services.archive import archive_in

        return archive_in(self.objects, self.config)

    @cached_property
    def admin(self) -> KafkaAdmin:
        from infra.kafka.cluster.admin import KafkaAdmin

        return KafkaAdmin(self.config.cluster.properties("admin"))

    @cached_property
    def cluster_id(self) -> str:
        """Of this region's cluster. Raises BrokerUnavailable."""
        return self.admin.cluster_id()

    @cached_property
    def groups(self) -> KafkaGroups:
        from infra.kafka.cluster.groups import KafkaGroups

        return KafkaGroups(self.config.cluster.properties("admin"), self.config.cluster.properties("consumer"))

    @cached_property
    def probe(self) -> KafkaLogProbe:
        from infra.kafka.cluster.log_probe import KafkaLogProbe

        return KafkaLogProbe(self.config.cluster.properties("consumer"), admin=self.config.cluster.properties("admin"))

    @cached_property
    def checkpoints(self) -> CheckpointStore:
        """Empty while the checkpoint topic does not exist."""
        from infra.kafka.client.properties import for_bounded_reads
        from infra.kafka.internal_topics.checkpoint_store import KafkaCheckpointStore

        topic = self.ingress.checkpoint_topic

        def open_store() -> CheckpointStore | None:
            if topic not in self.admin.describe([topic]):
                return None
            return KafkaCheckpointStore(for_bounded_reads(self.config.cluster.properties("consumer")), topic)

        store = CheckpointsOnceThere(open_store)
        self._opened.callback(store.close)
        return store

    @cached_property
    def editor(self) -> CheckpointEditor:
        """Creates the checkpoint topic if it does not exist yet, as ingress does."""
        from infra.kafka.internal_topics.checkpoint_editor import KafkaCheckpointEditor
        from infra.kafka.internal_topics.ensure import ensure_internal_topics

        settings = self.ingress
        ensure_internal_topics(
            self.admin,
            segment_events_topic=settings.segment_events_topic,
            segment_events_retention=settings.segment_events_retention,
            checkpoint_topic=settings.checkpoint_topic,
            offset_map_topic=settings.offset_map_topic,
            replication_factor=settings.internal_replication_factor,
        )
        editor = KafkaCheckpointEditor(self.config.cluster.properties("producer"), settings.checkpoint_topic)
        self._opened.callback(editor.close)
        return editor

    def claim(self, partitions: Collection[TopicPartition]) -> AbstractContextManager[None]:
        """Own `partitions` in place of ingress while the context is open."""
        from infra.kafka.consumer.placement_claim import KafkaClaim

        return KafkaClaim(self.config.cluster.properties("consumer"), group_id=self.ingress.group_id).hold(partitions)


class CheckpointsOnceThere:
    """A CheckpointStore of a topic that may not exist yet: empty until it does. For one reading at a time."""

    def __init__(self, open_store: Callable[[], CheckpointStore | None]) -> None:
        """`open_store`: None while there is no topic."""
        self._open = open_store
        self._store: CheckpointStore | None = None

    def read(self) -> Mapping[CheckpointKey, Checkpoint | CheckpointConflict]:
        self._store = self._store or self._open()
        return {} if self._store is None else self._store.read()

    def parked(self) -> Mapping[CheckpointKey, Parked]:
        return {} if self._store is None else self._store.parked()

    def skipped(self) -> Sequence[Skipped]:
        return () if self._store is None else self._store.skipped()

    def waiting(self) -> Mapping[CheckpointKey, Waiting]:
        return {} if self._store is None else self._store.waiting()

    def claims(self) -> Sequence[GroupClaim]:
        return () if self._store is None else self._store.claims()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
