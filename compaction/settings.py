"""The `[compaction]` section: which segments are merged into larger ones, when, and whether the inputs are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from formats.topic_selection import TopicPattern
from infra.settings.field import Problem, dotted, enforce, matching, not_blank, region_name, setting
from infra.settings.units import GIB, MIB

HIGHEST_LEVEL = 9_999  # what a key can hold
_cron_shape = matching(
    r"\s*\S+(\s+\S+){4,5}\s*", 'five fields, such as "0 1 * * *", or six of which the first are the seconds'
)


def _cron(text: str) -> str | None:
    if (shape := _cron_shape(text)) is not None:
        return shape
    from compaction.cron import problem  # noqa: PLC0415  -- croniter is loaded only where a file has a cron

    return problem(text)


def _zone(name: str) -> str | None:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # not found, not a file, not a name
        return f"{name!r} is not a time zone, such as UTC or Europe/Berlin"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """What one job merges. Sizes are those of stored objects."""

    name: str = field(metadata=setting("name for logs and reports", check=not_blank))
    cron: str | None = field(
        default=None,
        metadata=setting("when it runs; default: only with `replicator compact --once`", check=_cron),
    )
    timezone: str = field(default="UTC", metadata=setting("time zone of `cron`", check=_zone))
    jitter: timedelta = field(
        default=timedelta(0),
        metadata=setting("a run is delayed by a random time up to this", minimum=timedelta(0)),
    )
    parallelism: int | None = field(
        default=None, metadata=setting("merges that run in parallel; default: as many as Spark has slots", minimum=1)
    )
    topics: tuple[TopicPattern, ...] = field(default=(), metadata=setting("names or expressions; empty = all"))
    region: str | None = field(
        default=None, metadata=setting("whose archive; default: this region's", check=region_name)
    )
    owner: bool = field(
        default=False,
        metadata=setting(
            "allow another region's archive: only for one that no longer receives anything from its source, since two "
            "regions must never change the same objects"
        ),
    )
    min_level: int = field(
        default=0, metadata=setting("lowest level merged; 0 = written by egress", minimum=0, maximum=HIGHEST_LEVEL - 1)
    )
    max_level: int = field(
        default=0,
        metadata=setting(
            "highest level merged; the merged segment is one level above the highest of its inputs",
            minimum=0,
            maximum=HIGHEST_LEVEL - 1,
        ),
    )
    min_segment_age: timedelta = field(
        default=timedelta(hours=1),
        metadata=setting("younger segments are not merged; by the store's clock", minimum=timedelta(0)),
    )
    min_segment_count: int = field(
        default=10,
        metadata=setting(
            "fewer inputs are not merged, unless the merged segment is full; a single one never is", minimum=1
        ),
    )
    min_segment_size: int = field(
        default=GIB,
        metadata=setting("a smaller total is not merged, unless the merged segment is full", size=True, minimum=0),
    )
    max_segment_count: int = field(
        default=10_000, metadata=setting("maximum number of inputs of one merged segment", minimum=2)
    )
    max_segment_size: int = field(
        default=4 * GIB,
        metadata=setting("maximum total size of the inputs of one merged segment", size=True, minimum=1),
    )
    batch_size: int = field(
        default=1_000_000, metadata=setting("maximum records in one row group of a merged segment", minimum=1)
    )
    row_group_size: int = field(
        default=32 * MIB,
        metadata=setting(
            "maximum raw bytes in one row group of a merged segment; a reader holds one row group",
            size=True,
            minimum=MIB,
            maximum=GIB,
        ),
    )
    compression_level: int | None = field(
        default=None,
        metadata=setting(
            "zstd level of merged segments; default, with zstd: 9 where a sample of a segment's first records "
            "shows that it stores at least 5 % less than level 1, else 1, which takes a quarter of the time or less",
            minimum=1,
            maximum=22,
        ),
    )
    storage_class: str | None = field(
        default=None, metadata=setting("storage class of merged segments; default: that of [s3]", check=not_blank)
    )
    delete: bool = field(
        default=True,
        metadata=setting("delete segments whose records a merged segment is proved to hold"),
    )
    delete_grace: timedelta = field(
        default=timedelta(hours=1),
        metadata=setting(
            "how long an input stays, for readers, after the merged segment is stored", minimum=timedelta(0)
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def selects(self, topic: str) -> bool:
        return not self.topics or any(pattern.matches(topic) for pattern in self.topics)

    def _contradictions(self) -> Iterator[Problem]:
        if self.min_level > self.max_level:
            yield "min_level", f"{self.min_level} is above max_level, {self.max_level}: nothing would be merged"
        if self.min_segment_count > self.max_segment_count:
            yield "min_segment_count", f"must be at most max_segment_count, {self.max_segment_count:_}"
        if self.min_segment_size > self.max_segment_size:
            yield "min_segment_size", "must be at most max_segment_size"


LOCAL = "local[*,4]"
NO_JOBS = "missing: without a [[compaction.jobs]] nothing is merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Merging of archived segments, level by level, on Spark; and where Spark works, for everything that runs on it."""

    jobs: tuple[CompactionJob, ...] = field(default=(), metadata=setting("jobs, each under [[compaction.jobs]]"))
    master: str = field(
        default=LOCAL,
        metadata=setting("Spark master: local[cores,attempts], spark://host:port, yarn, k8s://…", check=not_blank),
    )
    spark: Mapping[str, str] = field(
        default_factory=dict, metadata=setting("[compaction.spark]: Spark's own properties, such as spark.jars.ivy")
    )
    ship_packages: bool = field(
        default=False,
        metadata=setting("send this program to the workers, which have its dependencies installed; see docs/spark.md"),
    )
    spool_dir: Path | None = field(
        default=None,
        metadata=setting("directory for a merged segment until it is stored, one per merge; default: the system's"),
    )
    group_id: str | None = field(
        default=None, metadata=setting("obsolete: the ancestor placed merges by a consumer group; ours need no Kafka")
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def _contradictions(self) -> Iterator[Problem]:
        if not (self.jobs or self.spark or self.ship_packages or self.master != LOCAL):
            yield "jobs", NO_JOBS
        seen: set[str] = set()
        for n, job in enumerate(self.jobs):
            if job.name in seen:
                yield dotted(("jobs", n, "name")), f"{job.name!r} is the name of another job, too"
            seen.add(job.name)
