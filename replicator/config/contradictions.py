"""Contradictions between sections. Each section's own contradictions are checked in its class."""

from __future__ import annotations

from collections.abc import Iterator

from compaction.retention_settings import RetentionSettings
from compaction.settings import CompactionSettings
from egress.settings import EgressSettings
from egress.sync_settings import SyncSettings
from formats.errors import PluginFailed
from formats.topic_selection import is_internal
from infra.settings.field import Problem, dotted
from infra.settings.kafka import MISSING_SERVERS, SERVERS
from infra.settings.storage import MAX_PARTS, S3Settings, SqsSettings
from infra.settings.units import format_size
from ingress.settings import IngressSettings
from replicator.config.mirrors import Mirror, loops
from replicator.config.queues import is_same_queue

NO_QUEUE: Problem = ("sqs", "missing: [ingress] reads the notifications of new segments from the queue of [sqs]")
NO_KAFKA: Problem = (dotted(("kafka", SERVERS)), MISSING_SERVERS)
_INTERNAL = "is an internal topic (__*, replicator.*, or set as one in [ingress])"


def between(
    *,
    region: str | None,
    s3: S3Settings | None,
    sqs: SqsSettings | None,
    egress: EgressSettings | None,
    ingress: IngressSettings | None,
    sync: SyncSettings | None,
    compaction: CompactionSettings | None,
    retention: RetentionSettings | None,
) -> Iterator[Problem]:
    """Contradictions between the sections that are present, also between the valid ones of a file with invalid ones."""
    own = frozenset[str]() if ingress is None else ingress.own_topics
    if egress is not None:
        for rule in egress.topics:
            if not rule.pattern.is_expression and is_internal(rule.pattern.text, own):
                yield dotted(("egress", "topics", rule.pattern.text)), f"{_INTERNAL}, which is never archived"
    if egress is not None and s3 is not None:
        yield from _too_large(egress, s3)
    if egress is not None and ingress is not None and egress.group_id == ingress.group_id:
        yield "ingress.group_id", f"{egress.group_id!r} is also egress.group_id; egress and ingress need a group each"
    if ingress is not None:
        yield from _of_sources(ingress, region)
    if ingress is not None and egress is not None:
        yield from _endless(egress, ingress, region)
    if sync is not None and s3 is not None:
        there = sync.destination
        if (s3.endpoint_url, s3.bucket, s3.prefix) == (there.endpoint_url, there.bucket, there.prefix):
            yield "sync.destination", "is the bucket and prefix of [s3]; set another"
    if sync is not None and sync.queue is not None and sqs is not None and is_same_queue(sqs, sync.queue):
        yield (
            "sync.queue.queue",
            "is the queue of [sqs]; a message reaches one reader only, so each reader needs a queue",
        )
    if compaction is not None:
        for n, job in enumerate(compaction.jobs):
            if job.region not in (None, region) and not job.owner:
                yield (
                    dotted(("compaction", "jobs", n, "region")),
                    f"{job.region!r} is another region's archive, which that region compacts; set owner = true if this "
                    "copy no longer receives segments from there",
                )
    if retention is not None:
        if retention.region not in (None, region) and not retention.owner:
            yield (
                "retention.region",
                f"{retention.region!r} is another region's archive, from which that region removes segments; set "
                "owner = true if its deletions are not replicated to this copy",
            )
        for rule_ in retention.topics:
            if not rule_.pattern.is_expression and is_internal(rule_.pattern.text, own):
                yield dotted(("retention", "topics", rule_.pattern.text)), f"{_INTERNAL}, which is never archived"


def _too_large(egress: EgressSettings, s3: S3Settings) -> Iterator[Problem]:
    largest = s3.part_size * MAX_PARTS
    for rule in egress.topics:
        size = rule.settings.max_segment_size
        if size > largest:
            yield (
                dotted(("egress", "topics", rule.pattern.text, "max_segment_size")),
                f"{format_size(size)} may not fit into {MAX_PARTS:_} parts of s3.part_size "
                f"({format_size(s3.part_size)}), the limit of S3",
            )


def _of_sources(ingress: IngressSettings, region: str | None) -> Iterator[Problem]:
    for n, source in enumerate(ingress.sources):
        destination_path = dotted(("ingress", "sources", n, "destination_topic"))
        if source.policy is not None and source.source_alias == region != source.region:
            what = "is this region's name, so its topics here would be taken for ones that left here; set another"
            yield dotted(("ingress", "sources", n, "alias")), f"{region!r} {what}"
        sample = "x" if source.topic.is_expression else source.topic.text
        try:
            destination = source.destination(sample)
        except PluginFailed:
            continue  # a problem of the source by itself, or of a topic that is not the sample
        if not source.topic.is_expression:
            if is_internal(sample, ingress.own_topics):
                yield dotted(("ingress", "sources", n, "topic")), f"{_INTERNAL}, which is never delivered"
            elif is_internal(destination, ingress.own_topics):
                yield destination_path, f"{destination!r} {_INTERNAL}; choose another name"
        if source.region == region and destination == sample:
            yield (
                destination_path,
                "would deliver this region's archive back into its source topic, in an endless loop; set another topic",
            )


def _endless(egress: EgressSettings, ingress: IngressSettings, region: str | None) -> Iterator[Problem]:
    """This region's own archive delivered here, into topics that are archived again and delivered again."""
    this = Mirror(name="", region=region or "", cluster="", egress=egress, ingress=ingress)
    for loop in loops([this]):
        yield (
            dotted(("ingress", "sources", loop.hops[0].source, "topic")),
            f"{loop.described(with_files=False)}, for ever; exclude the copies from [egress], or narrow an expression",
        )
