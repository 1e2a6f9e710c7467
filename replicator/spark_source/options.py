"""Parses the options of `spark.read` and `spark.readStream` with format "segments"; reports every problem at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from formats.errors import ConfigError
from formats.int_range import IntRange
from formats.read_splits import ArchiveQuery
from formats.records.milliseconds import first_ms_at_or_after
from formats.segment import SourcePartition
from formats.topic_selection import EXPRESSION_SIGN, TopicPattern
from infra.settings.field import suggestion
from infra.settings.units import MIB, parse_duration, parse_size
from replicator.config import Config, load

CONFIG, REGION, TOPIC, PARTITION, INCARNATION = "config", "region", "topic", "partition", "incarnation"
OFFSETS, FROM, UNTIL, MAX_BYTES = "offsets", "from", "until", "maxPartitionBytes"
COLUMN_NAMES = "columnNames"
STARTING_OFFSETS, STARTING_TIMESTAMP = "startingOffsets", "startingTimestamp"
TRIGGER_BYTES, FAIL_ON_LOSS, LOST_TIMEOUT = "maxBytesPerTrigger", "failOnDataLoss", "lostSegmentTimeout"
OF_A_READ = (OFFSETS, FROM, UNTIL)
OF_A_STREAM = (STARTING_OFFSETS, STARTING_TIMESTAMP, TRIGGER_BYTES, FAIL_ON_LOSS, LOST_TIMEOUT)
NAMES = (CONFIG, REGION, TOPIC, PARTITION, INCARNATION, *OF_A_READ, MAX_BYTES, COLUMN_NAMES, *OF_A_STREAM)

EVERY_INCARNATION = "*"
EARLIEST, LATEST = "earliest", "latest"

DEFAULT_MAX_BYTES = 128 * MIB  # Spark's default for its file formats
SOURCE = "segments"

_OFFSETS = re.compile(r"([0-9]{1,19})?-([0-9]{1,19})?")

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Where a new query starts, and what a trigger reads."""

    from_latest: bool = False
    from_time: datetime | None = None  # goes before `from_latest`
    max_bytes: int | None = None  # stored bytes of a trigger; None: everything
    fail_on_data_loss: bool = True
    lost_segment_timeout: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    config: Config
    wanted: ArchiveQuery
    max_partition_bytes: int
    every_incarnation: bool = False  # goes before the incarnation of `wanted`
    kafka_columns: bool = False
    stream: StreamOptions = StreamOptions()


def parse_options(given: Mapping[str, str], *, refused: Collection[str] = ()) -> ReadOptions:
    """Parse options, whose names are case-insensitive as in Spark. `refused`: options of the other kind of read. Raises
    ConfigError, also for the configuration file."""
    known = {name.lower(): name for name in NAMES}
    problems = [
        f"no option {name!r}{suggestion(name, NAMES) or '; there are: ' + ', '.join(NAMES)}"
        for name in given
        if name.lower() not in known
    ]
    texts = {known[name.lower()]: text for name, text in given.items() if name.lower() in known}
    other = "readStream" if set(refused) == set(OF_A_STREAM) else "read"
    problems += [f"{name}: an option of spark.{other} only" for name in refused if name in texts]

    def value(name: str, convert: Callable[[str], T], default: D) -> T | D:
        try:
            return convert(texts[name]) if name in texts else default
        except ValueError as error:
            problems.append(f"{name}: {error}")
            return default

    if CONFIG not in texts:
        problems.append(f"{CONFIG}: missing: the path of a replicator.toml, which names the archive")
    timestamps = IntRange(
        low=value(FROM, _first_ms, IntRange().low), high=value(UNTIL, _first_ms, IntRange().high + 1) - 1
    )
    every_incarnation = texts.get(INCARNATION, EVERY_INCARNATION if refused == OF_A_READ else "") == EVERY_INCARNATION
    wanted = ArchiveQuery(
        region=value(REGION, _region, ""),
        topics=value(TOPIC, _topics, ()),
        incarnation="" if every_incarnation else value(INCARNATION, _incarnation, ""),
        partitions=value(PARTITION, _partitions, None),
        offsets=value(OFFSETS, _offsets, IntRange(0)),
        timestamps=timestamps,
    )
    max_bytes = value(MAX_BYTES, _size, DEFAULT_MAX_BYTES)
    kafka_columns = value(COLUMN_NAMES, _choice("segments", "kafka"), "segments") == "kafka"
    stream = StreamOptions(
        from_latest=value(STARTING_OFFSETS, _choice(EARLIEST, LATEST), EARLIEST) == LATEST,
        from_time=value(STARTING_TIMESTAMP, _time, None),
        max_bytes=value(TRIGGER_BYTES, _size, None),
        fail_on_data_loss=value(FAIL_ON_LOSS, _choice("true", "false"), "true") == "true",
        lost_segment_timeout=value(LOST_TIMEOUT, parse_duration, StreamOptions().lost_segment_timeout),
    )
    if problems:
        raise ConfigError(problems, source=SOURCE)
    config = load(texts[CONFIG])
    wanted = replace(wanted, region=wanted.region or config.region)
    return ReadOptions(config, wanted, max_bytes, every_incarnation, kafka_columns, stream)


def _choice(*choices: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"{text!r} is not one of: {', '.join(choices)}")
        return text.lower()

    return convert


def _region(text: str) -> str:
    return SourcePartition(text, "any", 0).region


def _topics(text: str) -> tuple[TopicPattern, ...]:
    names = [one.strip() for one in text.split(",")]
    for one in names:
        name, at, incarnation = one.partition("@")
        if at and not one.startswith(EXPRESSION_SIGN):
            raise ValueError(f"{one!r} is an archive path: give {TOPIC} {name!r}, and {INCARNATION} {incarnation!r}")
    return tuple(map(TopicPattern, names))


def _incarnation(text: str) -> str:
    return SourcePartition("any", "any", 0, text).incarnation


def _partitions(text: str) -> frozenset[int] | None:
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise ValueError(f'{text!r} is not a partition number, nor several such as "0,3"')
    return frozenset(map(int, numbers))


def _offsets(text: str) -> IntRange:
    match = _OFFSETS.fullmatch(text.strip())
    if match is None or text.strip() == "-":
        raise ValueError(f'{text!r} is not a range of offsets; write it like "1000-1999", "1000-" or "-1999"')
    return IntRange(int(match[1] or 0), int(match[2] or IntRange().high)).intersection(IntRange())


def _first_ms(text: str) -> int:
    """The first whole millisecond of the epoch at or after a time."""
    return first_ms_at_or_after(_time(text))


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time, such as 2026-01-31T12:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write {at.isoformat()}Z for UTC")
    return at


def _size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes < 1:
        raise ValueError("must be at least 1")
    return size_bytes
