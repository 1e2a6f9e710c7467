"""Parses the options of `spark.read.format("segments")`; reports every problem at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from formats.errors import ConfigError
from formats.int_range import IntRange
from formats.read_splits import ArchiveQuery
from formats.records.milliseconds import first_ms_at_or_after
from formats.segment import SourcePartition
from formats.topic_selection import TopicPattern
from infra.settings.field import suggestion
from infra.settings.units import MIB, parse_size
from replicator.config import Config, load

CONFIG, REGION, TOPIC, PARTITION, INCARNATION = "config", "region", "topic", "partition", "incarnation"
OFFSETS, FROM, UNTIL, MAX_BYTES = "offsets", "from", "until", "maxPartitionBytes"
NAMES = (CONFIG, REGION, TOPIC, PARTITION, INCARNATION, OFFSETS, FROM, UNTIL, MAX_BYTES)

DEFAULT_MAX_BYTES = 128 * MIB  # Spark's default for its file formats
SOURCE = "segments"

_OFFSETS = re.compile(r"([0-9]{1,19})?-([0-9]{1,19})?")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    config: Config
    wanted: ArchiveQuery
    max_partition_bytes: int


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse options, whose names are case-insensitive as in Spark. Raises ConfigError, also for the configuration
    file."""
    known = {name.lower(): name for name in NAMES}
    problems = [
        f"no option {name!r}{suggestion(name, NAMES) or '; there are: ' + ', '.join(NAMES)}"
        for name in given
        if name.lower() not in known
    ]
    texts = {known[name.lower()]: text for name, text in given.items() if name.lower() in known}

    def value(name: str, convert: Callable[[str], T], default: T) -> T:
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
    wanted = ArchiveQuery(
        region=value(REGION, _region, ""),
        topics=value(TOPIC, _topics, ()),
        incarnation=value(INCARNATION, _incarnation, ""),
        partitions=value(PARTITION, _partitions, None),
        offsets=value(OFFSETS, _offsets, IntRange(0)),
        timestamps=timestamps,
    )
    max_bytes = value(MAX_BYTES, _size, DEFAULT_MAX_BYTES)
    if problems:
        raise ConfigError(problems, source=SOURCE)
    config = load(texts[CONFIG])
    return ReadOptions(config, replace(wanted, region=wanted.region or config.region), max_bytes)


def _region(text: str) -> str:
    return SourcePartition(text, "any", 0).region


def _topics(text: str) -> tuple[TopicPattern, ...]:
    return tuple(TopicPattern(one.strip()) for one in text.split(","))


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
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time, such as 2026-01-31T12:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write {at.isoformat()}Z for UTC")
    return first_ms_at_or_after(at)


def _size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes < 1:
        raise ValueError("must be at least 1")
    return size_bytes
