"""Gathers the facts of one deployment, at the same time and within one time limit.

Each fact is asked for by itself: what cannot be read becomes `Unread` with its reason, and hides no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial

from formats.errors import CorruptSegment, SegmentNotFound
from formats.incarnation import Incarnation
from formats.segment import SourcePartition
from infra.archive.archive import Archive
from infra.archive.notification_probes import NotificationProbes
from infra.kafka.client.librdkafka import library_version
from infra.runtime.java import find_java
from infra.runtime.lifecycle import Clock, Deadline, Stop
from replicator.config import Config, SqsSettings
from replicator.doctor.bucket_facts import ask_bucket, queue_facts
from replicator.doctor.cluster_facts import NO_BROKER, ClusterReader, unreachable
from replicator.doctor.facts import (
    NOT_ASKED,
    ClusterFacts,
    DeploymentFacts,
    ProgramFacts,
    QueueFacts,
    RetentionFacts,
    Unread,
    WrittenFacts,
)
from replicator.doctor.key_facts import ask_for_keys
from replicator.doctor.probing import WAIT, Prober
from replicator.doctor.reading import Asked, Questions, attempt
from replicator.rights.config import archives_of
from replicator.rights.table import ROLES, CommandRole
from replicator.services.archive import archive_in
from replicator.services.encryption import KeyRetries, encrypted
from replicator.services.setups import queue_setup
from replicator.services.wiring import ONCE, PROBE_TIMEOUT, program, s3_store

BUDGET = timedelta(seconds=50)  # for all facts of one region
REQUEST = timedelta(seconds=10)  # for one request to a cluster
TOPICS_READ, SEGMENTS_LISTED = 3, 1000  # of a region, to see who writes


def roles_of(config: Config) -> Sequence[CommandRole]:
    """Those of the services that the file describes; of a file without any, those of the jobs."""
    services = {"egress": config.egress, "ingress": config.ingress, "sync": config.sync}
    jobs = {"compact": config.compaction, "gc": config.retention}
    found = [role for role in ROLES if services.get(role.name) is not None]
    return found or [role for role in ROLES if jobs.get(role.name) is not None]


def gather(
    config: Config,
    roles: Sequence[CommandRole],
    pool: Executor,
    clock: Clock,
    opened: ExitStack,
    *,
    writes: bool = True,
    deadline: Deadline | None = None,
    probe_wait: timedelta = WAIT,
) -> DeploymentFacts:
    """`roles`: whose rights are asked for. `writes`: also ask what leaves an object, or a transactional id."""
    questions = Questions(pool, deadline or Deadline(BUDGET))
    sources = [] if config.ingress is None else config.ingress.regions
    with_queue = config.sqs is not None and config.ingress is not None
    queue = questions.ask(partial(queue_facts, config.sqs, opened)) if with_queue and config.sqs is not None else None
    synced = None if config.sync is None else config.sync.queue
    sync_queue = None if synced is None else questions.ask(partial(queue_facts, synced, opened))
    keys = ask_for_keys(config, roles, questions, opened)
    written = questions.ask(partial(_written, config, sources, opened))
    java = None if config.compaction is None else questions.ask(_java)
    ask = partial(ask_bucket, region=config.region, questions=questions, opened=opened, now=clock.now, writes=writes)
    bucket = ask(config.s3, _rows((role.iam, archives_of(role, config)) for role in roles), sources=sources)
    there = _rows((role.there, archives_of(role, config)) for role in roles)
    destination = None if config.sync is None else ask(config.sync.destination, there, sources=[])
    # what was asked until here is answered while the cluster is waited for
    reader = None if config.kafka is None else attempt(partial(ClusterReader, config, roles, REQUEST))
    cluster = None if reader is None else _cluster(config, roles, reader, questions, writes=writes)
    retention = _retention(config, reader, cluster, questions)
    found = None if queue is None else _known_queue(queue.answer(), config.sqs)
    probing = None
    if found is not None and writes:
        setup, members = found.setup, _members(config, reader, questions)
        probing = questions.ask(lambda: _prober(config, opened, clock, probe_wait).probe(sources, setup, members))
    return DeploymentFacts(
        config=config,
        roles=roles,
        at=clock.now(),
        programs=ProgramFacts(
            replicator=program(),
            librdkafka=library_version(),
            java=None if java is None else java.answer(),
        ),
        bucket=bucket(),
        destination=None if destination is None else destination(),
        cluster=cluster,
        queue=found,
        sync_queue=None if sync_queue is None else _known_queue(sync_queue.answer(), synced),
        keys=[one.facts() for one in keys],
        probes=() if found is None else NOT_ASKED if probing is None else probing.answer(),
        retention=None if retention is None else retention.answer(),
        written=written.answer(),
    )


def _rows(found: Iterable[tuple[Sequence[str], Collection[str]]]) -> Mapping[str, Collection[str]]:
    """Rows of the table of rights, and whose archives each is for."""
    rows: dict[str, set[str]] = {}
    for names, archives in found:
        for name in names:
            rows.setdefault(name, set()).update(archives)
    return rows


def _known_queue(asked: QueueFacts | Unread, settings: SqsSettings | None) -> QueueFacts:
    assert settings is not None
    return asked if isinstance(asked, QueueFacts) else QueueFacts(name=settings.queue, setup=asked)


def _prober(config: Config, opened: ExitStack, clock: Clock, wait: timedelta) -> Prober:
    """Raises ConfigError."""
    assert config.sqs is not None
    objects = s3_store(config.s3, 1, opened, once=True, read_timeout=PROBE_TIMEOUT)
    probes = NotificationProbes(objects, config.s3.prefix, config.region)
    return Prober(probes, queue_setup(config.sqs, opened), clock, wait)


def _cluster(
    config: Config,
    roles: Sequence[CommandRole],
    reader: ClusterReader | Unread,
    questions: Questions,
    *,
    writes: bool,
) -> ClusterFacts:
    if isinstance(reader, Unread):
        return unreachable(config, roles, reader)
    return reader.facts(questions, writes=writes)


def _members(config: Config, reader: ClusterReader | Unread | None, questions: Questions) -> int | Unread:
    """Processes of ingress that run."""
    assert config.ingress is not None
    if not isinstance(reader, ClusterReader):
        return NO_BROKER
    return questions.ask(partial(reader.members, config.ingress.group_id)).answer()


def _retention(
    config: Config, reader: ClusterReader | Unread | None, cluster: ClusterFacts | None, questions: Questions
) -> Asked[Sequence[RetentionFacts]] | None:
    if config.egress is None or cluster is None:
        return None
    if not isinstance(reader, ClusterReader):
        return questions.ask(lambda: NO_BROKER)
    return questions.ask(partial(reader.retention, cluster.topics))


def _java() -> str:
    return find_java().version


def _written(config: Config, sources: Sequence[str], opened: ExitStack) -> Sequence[WrittenFacts]:
    """Of some topics of each region: who wrote one of the last segments of level 0. Raises StoreUnavailable."""
    stored = s3_store(config.s3, 1, opened, once=True, read_timeout=PROBE_TIMEOUT)
    retries = KeyRetries(Stop(), ONCE)
    archive = archive_in(encrypted(stored, config.encryption, config.s3.prefix, retries, opened), config)
    return [
        found
        for region in dict.fromkeys([config.region, *sources])
        for incarnation in archive.segments.incarnations(region)[:TOPICS_READ]
        if (found := _last_written(archive, region, incarnation)) is not None
    ]


def _last_written(archive: Archive, region: str, incarnation: Incarnation) -> WrittenFacts | None:
    partitions = archive.segments.partitions(region, incarnation.path)
    if not partitions:
        return None
    source = SourcePartition.of(region, incarnation, partitions[0])
    level = next(archive.segments.each_level(source), None)
    listed = [] if level is None else list(archive.segments.level(source, level, limit=SEGMENTS_LISTED))
    if not listed:
        return None
    segment = listed[-1].segment
    try:
        writer = archive.footer(segment).origin.writer
    except SegmentNotFound:
        return None  # compaction has just replaced it
    except CorruptSegment as error:
        return WrittenFacts(region=region, segment=str(segment), problem=str(error))
    return WrittenFacts(region=region, segment=str(segment), writer=writer)
