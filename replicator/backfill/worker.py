"""Writes ranges with clients of its own: in a thread of the command, or in a task of Spark."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from egress.segments.builder import SegmentBuilder
from egress.topics.incarnation_check import Confirmations
from formats.errors import ReplicatorError
from formats.topic_selection import select
from infra.archive.archive import Archive
from infra.archive.upload import Uploader
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer.partition_reader import read_runs
from infra.runtime import log_fields
from infra.runtime.lifecycle import Stop, SystemClock
from replicator.backfill.range_writer import RangeWriter
from replicator.backfill.request import RangeOutcome, RangeTask
from replicator.config import Config, EgressSettings
from replicator.services.archive import open_archive
from replicator.services.egress import encode_threads, isolation_level, open_spool, source_compacted
from replicator.services.segment_formats import SegmentFormats
from replicator.services.wiring import program

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillWorker:
    """Safe to call from several threads: each range has its own consumer, spool and builder."""

    config: Config
    settings: EgressSettings
    archive: Archive
    admin: KafkaAdmin
    stop: Stop
    share: int = 1  # ranges at a time, which share the memory budget of egress

    @classmethod
    def open(cls, config: Config, stop: Stop, opened: ExitStack, *, share: int = 1) -> BackfillWorker:
        """Its clients are closed with `opened`. Raises ConfigError."""
        if config.egress is None:
            raise config.without("egress", "; add [egress] with the topics that are archived")
        return cls(
            config=config,
            settings=config.egress,
            archive=open_archive(config, stop, opened),
            admin=KafkaAdmin(config.cluster.properties("admin")),
            stop=stop,
            share=share,
        )

    def write(self, task: RangeTask) -> RangeOutcome:
        """An outcome also when it failed in a way that a repetition does not change; raises BrokerUnavailable,
        StoreUnavailable and BackfillStopped."""
        properties = self.config.cluster.properties("consumer")
        isolation = isolation_level(self.config)
        settings = replace(self.settings, memory_budget=max(self.settings.memory_budget // self.share, 16 << 20))
        with ExitStack() as opened:
            asks = ThreadPoolExecutor(1, "confirm")
            opened.callback(asks.shutdown, wait=False, cancel_futures=True)
            confirmations = Confirmations(self.admin, asks)
            formats = SegmentFormats(self.config, self.archive.format)
            spool = opened.enter_context(open_spool(settings))
            builder = SegmentBuilder(
                format_of=lambda source: formats.of(
                    select([source.topic], settings.rules, self.config.own_topics).get(source.topic)
                ),
                confirm=confirmations.ask,
                uploader=Uploader(self.archive, source_compacted=lambda segment: source_compacted(self.admin, segment)),
                spool=spool,
                memory_bytes=settings.memory_budget // 2,
                encode_threads=encode_threads(),
                upload_threads=settings.upload_threads,
            )
            opened.callback(builder.close)
            writer = RangeWriter(
                archive=self.archive,
                builder=builder,
                confirmations=confirmations,
                read=partial(read_runs, properties, isolation_level=isolation),
                isolation_level=isolation,
                writer=program(),
                created_by=self.config.created_by or "",
                clock=SystemClock(),
                stop=self.stop,
            )
            outcome = writer.write(task)
        log.info(
            "range_written",
            extra={
                log_fields.REGION: task.source.region,
                log_fields.TOPIC: task.source.path,
                log_fields.PARTITION: task.source.partition,
                log_fields.START: task.offsets.start,
                log_fields.END: task.offsets.end,
                log_fields.COUNT: outcome.segments,
            },
        )
        return outcome

    def attempt(self, task: RangeTask) -> RangeOutcome:
        """An outcome, whatever made it fail: a range whose broker or bucket has no answer does not take the outcomes of
        the others with it."""
        try:
            return self.write(task)
        except ReplicatorError as error:
            return failed(task, str(error))


def failed(task: RangeTask, reason: str) -> RangeOutcome:
    return RangeOutcome(source=str(task.source), start=task.offsets.start, end=task.offsets.end, failed=reason)
