"""librdkafka properties of our consumers: pinned, derived and user-set.

A guarantee rests on each pinned property; a configuration with another value is rejected, not overridden. Every other
property that the user sets takes precedence over the derived value.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta

from formats.errors import ConfigError

MIB = 1 << 20

ALWAYS: Mapping[str, str] = {
    "enable.auto.commit": "false",  # committed means stored
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",  # never jump silently
    "enable.partition.eof": "true",  # its offset reveals holes at the end that no record shows
    "allow.auto.create.topics": "false",
}
READER: Mapping[str, str] = {**ALWAYS, "isolation.level": "read_committed"}  # aborted checkpoints are not valid
ASSIGNOR = "partition.assignment.strategy"
_BROKER_DECIDES = (ASSIGNOR, "session.timeout.ms", "heartbeat.interval.ms", "group.protocol.type")
"""Properties that KIP-848 moves to the broker; the client rejects them with `group.protocol=consumer`."""

REFRESH, MIN_REFRESH_MS, MAX_REFRESH_MS = "topic.metadata.refresh.interval.ms", 100, 3_600_000
FETCH_SHARE, MIN_FETCH_BYTES, MAX_BYTES = 2, 1_000_000, 2_000_000_000


def reader_properties(given: Mapping[str, object]) -> dict[str, object]:
    """For a consumer that assigns partitions itself and commits nothing: its group id is random, so that no other
    consumer of the topic is affected."""
    return {**given, **READER, "group.id": f"replicator.reader.{uuid.uuid4().hex}"}


def for_bounded_reads(given: Mapping[str, object]) -> dict[str, object]:
    """For a reader that ends at an offset: a broker says within 50 ms, not 500 ms, that no further record is there,
    and most reads end with that; and a topic that was just created is asked again as soon. A reader that runs for days
    would ask ten times as often for it."""
    return {"fetch.wait.max.ms": "50", "fetch.error.backoff.ms": "50", **given}


def source_properties(
    given: Mapping[str, str], *, group_id: str, isolation_level: str, memory_bytes: int, brokers: int
) -> dict[str, str]:
    """For a group member that reads records. Raises ConfigError."""
    pinned = {**ALWAYS, "group.id": group_id, "isolation.level": isolation_level}
    return {**_memory(memory_bytes, brokers), **_merged(given, pinned)}


def placement_properties(given: Mapping[str, str], *, group_id: str) -> dict[str, str]:
    """For a group member that reads no records. Raises ConfigError.

    `read_committed` makes `committed()` wait for another member's pending transactional offsets.
    """
    pinned = {**ALWAYS, "enable.partition.eof": "false", "group.id": group_id, "isolation.level": "read_committed"}
    small = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    return {**small, **_merged(given, pinned)}


def with_metadata_refresh(given: Mapping[str, str], every: timedelta) -> dict[str, str]:
    """Add the interval at which a member refreshes metadata, which is how it learns of new partitions of a subscribed
    topic. The client's default is five minutes, and subscribing to the same topics again sends no request (seen)."""
    milliseconds = min(max(int(every / timedelta(milliseconds=1)), MIN_REFRESH_MS), MAX_REFRESH_MS)
    return {REFRESH: str(milliseconds), **given}


def lookup_properties(member: Mapping[str, str]) -> dict[str, str]:
    """For a client that reads the group's offsets without joining the group. `member`: properties of a member."""
    only_members = ("group.instance.id", "group.protocol", "group.remote.assignor", *_BROKER_DECIDES)
    return {name: value for name, value in member.items() if name not in only_members}


def outsider_properties(member: Mapping[str, str], group_id: str) -> dict[str, str]:
    """For a client that reads or commits the offsets of any group without joining it. `member`: as above."""
    return {
        **lookup_properties(member),
        "group.id": group_id,
        "isolation.level": "read_uncommitted",  # pending offsets are not waited for
        "enable.auto.commit": "false",
    }


def _merged(given: Mapping[str, str], pinned: Mapping[str, str]) -> dict[str, str]:
    problems = [
        f'"{name}" = "{given[name]}": must be "{value}"'
        for name, value in pinned.items()
        if name in given and str(given[name]).lower() != value.lower()
    ]
    merged = {**given, **pinned}
    if given.get("group.protocol", "classic").lower() == "consumer":
        problems += [
            f'"{name}": belongs to the broker when "group.protocol" = "consumer"; remove it'
            for name in _BROKER_DECIDES
            if name in given
        ]
    elif given.get(ASSIGNOR, "cooperative-sticky") != "cooperative-sticky":
        problems.append(f'"{ASSIGNOR}" = "{given[ASSIGNOR]}": must be "cooperative-sticky"')
    else:
        merged[ASSIGNOR] = "cooperative-sticky"
    if problems:
        raise ConfigError(problems, source="kafka consumer")
    return merged


def _memory(memory_bytes: int, brokers: int) -> dict[str, str]:
    """Half of the budget is for fetched messages in the client's queue, half for fetch responses in flight, one per
    broker.

    A record larger than any of these limits is still delivered: a broker sends the first batch of a response whole.
    The client stops fetching at the first of two limits, so the limit in messages is set out of reach. By default it
    checks the queue again after a second, which would halve the throughput of a small queue.
    """
    queued = max(memory_bytes // FETCH_SHARE, MIB)
    fetch = min(max((memory_bytes - queued) // max(brokers, 1), MIN_FETCH_BYTES), MAX_BYTES)
    return {
        "queued.max.messages.kbytes": str(min(queued, MAX_BYTES) >> 10),
        "queued.min.messages": "10000000",
        "fetch.queue.backoff.ms": "10",
        "fetch.max.bytes": str(fetch),
        "max.partition.fetch.bytes": str(min(4 * MIB, fetch)),
        "receive.message.max.bytes": str(max(100_000_000, fetch + 1024)),
        "fetch.wait.max.ms": "250",  # a seek takes effect with the next fetch
    }
