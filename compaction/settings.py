"""The `[compaction]` section: which segments are merged into larger ones, when, and whether the inputs are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from formats.topic_selection import TopicPattern
from infra.settings.field import Problem, about, dotted, enforce, matching, not_blank, region_name
from infra.settings.units import GIB, MIB

HIGHEST_LEVEL = 9_999  # what a key can hold
_CRON = matching(
    r"\s*\S+(\s+\S+){4,5}\s*", 'five fields, such as "0 1 * * *", or six of which the first are the seconds'
)


def _zone(name: str) -> str | None:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # not found, not a file, not a name
        return f"{name!r} is not a time zone, such as UTC or Europe/Berlin"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """What one job merges. Sizes are those of stored objects."""

    name: str = field(metadata=about("name for logs and reports", check=not_blank))
    cron: str | None = field(
        default=None,
        metadata=about("when it runs; default: only with `replicator compact --once`", check=_CRON),
    )
    timezone: str = field(default="UTC", metadata=about("time zone of `cron`", check=_zone))
    jitter: timedelta = field(
        default=timedelta(0),
        metadata=about("a run is delayed by a random time up to this", minimum=timedelta(0)),
    )
    parallelism: int | None = field(
        default=None, metadata=about("merges that run in parallel; default: as many as Spark has slots", minimum=1)
    )
    topics: tuple[TopicPattern, ...] = field(default=(), metadata=about("names or expressions; empty = all"))
    region: str | None = field(default=None, metadata=about("whose archive; default: this region's", check=region_name))
    owner: bool = field(
        default=False,
        metadata=about(
            "allow another region's archive: only for one that no longer receives anything from its source, since two "
            "regions must never change the same objects"
        ),
    )
    min_level: int = field(
        default=0, metadata=about("lowest level merged; 0 = written by egress", minimum=0, maximum=HIGHEST_LEVEL - 1)
    )
    max_level: int = field(
        default=0,
        metadata=about(
            "highest level merged; the merged segment is one level above the highest of its inputs",
            minimum=0,
            maximum=HIGHEST_LEVEL - 1,
        ),
    )
    min_segment_age: timedelta = field(
        default=timedelta(hours=1),
        metadata=about("younger segments are not merged; by the store's clock", minimum=timedelta(0)),
    )
    min_segment_count: int = field(
        default=10,
        metadata=about(
            "fewer inputs are not merged, unless the merged segment is full; a single one never is", minimum=1
        ),
    )
    min_segment_size: int = field(
        default=GIB,
        metadata=about("a smaller total is not merged, unless the merged segment is full", size=True, minimum=0),
    )
    max_segment_count: int = field(
        default=10_000, metadata=about("maximum number of inputs of one merged segment", minimum=2)
    )
    max_segment_size: int = field(
        default=4 * GIB, metadata=about("maximum total size of the inputs of one merged segment", size=True, minimum=1)
    )
    batch_size: int = field(
        default=1_000_000, metadata=about("maximum records in one row group of a merged segment", minimum=1)
    )
    row_group_size: int = field(
        default=32 * MIB,
        metadata=about(
            "maximum raw bytes in one row group of a merged segment; a reader holds one row group",
            size=True,
            minimum=MIB,
            maximum=GIB,
        ),
    )
    compression_level: int = field(
        default=9,
        metadata=about("compression level of merged segments, which are written once and read for years", minimum=1),
    )
    storage_class: str | None = field(
        default=None, metadata=about("storage class of merged segments; default: that of [s3]", check=not_blank)
    )
    delete: bool = field(
        default=True,
        metadata=about("delete segments whose records a merged segment is proved to hold"),
    )
    delete_grace: timedelta = field(
        default=timedelta(hours=1),
        metadata=about(
            "how long an input stays, for readers, after the merged segment is stored", minimum=timedelta(0)
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def takes(self, topic: str) -> bool:
        return not self.topics or any(pattern.matches(topic) for pattern in self.topics)

    def _contradictions(self) -> Iterator[Problem]:
        if self.min_level > self.max_level:
            yield "min_level", f"{self.min_level} is above max_level, {self.max_level}: nothing would be merged"
        if self.min_segment_count > self.max_segment_count:
            yield "min_segment_count", f"must be at most max_segment_count, {self.max_segment_count:_}"
        if self.min_segment_size > self.max_segment_size:
            yield "min_segment_size", "must be at most max_segment_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Merging of archived segments, level by level, on Spark."""

    jobs: tuple[CompactionJob, ...] = field(metadata=about("jobs, each under [[compaction.jobs]]"))
    master: str = field(
        default="local[*,4]",
        metadata=about("Spark master: local[cores,attempts], spark://host:port, yarn, k8s://…", check=not_blank),
    )
    spark: Mapping[str, str] = field(
        default_factory=dict, metadata=about("[compaction.spark]: Spark's own properties, such as spark.jars.ivy")
    )
    ship_packages: bool = field(
        default=False,
        metadata=about("send this program to the workers, which have its dependencies installed; see docs/spark.md"),
    )
    spool_dir: Path | None = field(
        default=None,
        metadata=about("directory for a merged segment until it is stored, one per merge; default: the system's"),
    )
    group_id: str | None = field(
        default=None, metadata=about("obsolete: the ancestor placed merges by a consumer group; ours need no Kafka")
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def _contradictions(self) -> Iterator[Problem]:
        if not self.jobs:
            yield "jobs", "missing: without a [[compaction.jobs]] nothing is merged"
        seen: set[str] = set()
        for n, job in enumerate(self.jobs):
            if job.name in seen:
                yield dotted(("jobs", n, "name")), f"{job.name!r} is the name of another job, too"
            seen.add(job.name)
