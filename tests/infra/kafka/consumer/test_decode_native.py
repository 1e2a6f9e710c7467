"""`decode_native` against `decode`, on messages without a broker: the same items, and each message destroyed once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.records.schema import SCHEMA
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import PartitionFailed, Run
from infra.kafka.consumer import decode, decode_native
from infra.kafka.consumer.decode import Event, Item
from tests.contracts.consumer import check
from tests.infra.kafka.consumer.planted_messages import Plantation, Planted, taken

EOF, GONE, RESET = KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._AUTO_OFFSET_RESET
INT64 = st.integers(-(2**63), 2**63 - 1)
DATA = st.none() | st.binary(max_size=20) | st.binary(min_size=200, max_size=300)
NAMES = st.text(st.characters(exclude_categories=["Cs"]) | st.just("\0"), max_size=5).map(str.encode)
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=4).map(tuple)


@st.composite
def streams(draw: st.DrawFn) -> list[Planted]:
    """Messages of some partitions, each in rising offset order and with leader epochs that never fall, with errors and
    ends among them."""
    fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b", "é"]),
            "partition": st.integers(0, 2),
            "key": DATA,
            "value": DATA,
            "headers": st.just(()) | HEADERS,
            "timestamp": st.tuples(st.sampled_from([0, 1, 2]), INT64),
            "error": st.sampled_from([0, 0, 0, 0, EOF, GONE]),
        }
    )
    epochs: dict[tuple[str, int], int] = {}
    planted = []
    offset = draw(st.integers(0, 2**62))
    for row in draw(st.lists(fields, max_size=40)):
        offset += draw(st.sampled_from([1, 1, 7]))
        where = row["topic"], row["partition"]
        epochs[where] = epochs.get(where, draw(st.sampled_from([-1, 0]))) + draw(st.sampled_from([0, 0, 0, 1]))
        if row["error"]:
            row |= {"headers": (), "key": None, "value": None}
        planted.append(Planted(**row, offset=offset, epoch=epochs[where]))
    return planted


def message(one: Planted) -> Message:
    """The client's object for it."""
    if one.error:
        error = KafkaError(one.error, f"planted {one.error}")
        return Message(topic=one.topic, partition=one.partition, offset=one.offset, error=error)
    return Message(
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        key=one.key,
        value=one.value,
        headers=[(name.decode(), value) for name, value in one.headers] or None,
        timestamp=one.timestamp,
        leader_epoch=one.epoch,
    )


Flat = tuple[TopicPartition, object]


def flat(found: Iterator[tuple[TopicPartition, Item]], next_offset: int = 0) -> list[Flat]:
    """The runs, with their rows, and the events, of records at or after `next_offset`."""
    every: list[Flat] = []
    for partition, item in found:
        if isinstance(item, Event):
            every.append((partition, (item.offset, item.error.code(), item.error.name(), item.error.str())))
            continue
        records = item.from_offset(next_offset) if item.first_offset < next_offset else item
        for run in records.runs() if records is not None else ():
            if isinstance(run, PartitionFailed):
                every.append((partition, (run.code, run.offset)))
                break
            check(run)
            run.batch.validate(full=True)
            every.append((partition, run))
    return every


def assert_same(ours: Sequence[Flat], reference: Sequence[Flat]) -> None:
    assert [where for where, _ in ours] == [where for where, _ in reference]
    for (_, one), (_, other) in zip(ours, reference, strict=True):
        if not isinstance(one, Run) or not isinstance(other, Run):
            assert one == other
            continue
        assert one.batch.equals(other.batch, check_metadata=True)
        assert one.batch.schema.equals(SCHEMA, check_metadata=True)
        facts = [
            (r.partition, r.first_offset, r.last_offset, r.count, r.size_bytes, r.last_leader_epoch)
            for r in (one, other)
        ]
        assert facts[0] == facts[1]
        for name in SCHEMA.names:
            assert one.batch.column(name).null_count == other.batch.column(name).null_count


def assert_all_destroyed(plantation: Plantation, count: int) -> None:
    assert not plantation.of, "a message was forgotten"
    assert set(plantation.destroyed.values()) <= {1}, "a message was destroyed twice"
    assert len(plantation.destroyed) == count


@settings(deadline=None)
@given(streams(), st.data())
def test_the_items_are_those_of_the_client(planted: list[Planted], data: st.DataObject) -> None:
    offsets = [one.offset for one in planted]
    next_offset = data.draw(st.sampled_from([0, *offsets, *(offset + 1 for offset in offsets)]))
    plantation = Plantation()
    with taken(planted, plantation) as messages:
        ours = flat(decode_native.items(messages), next_offset)
    assert_all_destroyed(plantation, len(planted))
    assert_same(ours, flat(decode.items([message(one) for one in planted]), next_offset))


@settings(deadline=None)
@given(streams(), st.integers(0, 20), st.booleans())
def test_messages_are_destroyed_once_wherever_the_reading_ends(planted: list[Planted], after: int, fails: bool) -> None:
    plantation = Plantation()

    def read() -> None:
        with taken(planted, plantation) as messages:
            for number, (_, item) in enumerate(decode_native.items(messages)):
                if number == after:
                    if fails:
                        raise ValueError("planned")
                    return
                if not isinstance(item, Event) and number % 2:
                    item.runs()

    try:
        read()
    except ValueError:
        assert fails
    assert_all_destroyed(plantation, len(planted))


LEADS = b"a\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"
SECONDS = b"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0"  # where the ranges of second bytes begin and end
OTHERS = b"\x7f\x80\xbf\xc0"


def test_a_header_name_is_decoded_like_python_does() -> None:
    """Every sequence of bytes at which the rules of UTF-8 change, alone and inside of what is well-formed."""
    sequences = [
        bytes(parts) for length in range(5) for parts in itertools.product(*[LEADS, SECONDS, OTHERS, OTHERS][:length])
    ]
    for before, after in ((b"", b""), (b"a", "é😀".encode())):
        names = [before + sequence + after for sequence in sequences]
        planted = [Planted(topic="t", partition=0, offset=at, headers=((name, None),)) for at, name in enumerate(names)]
        plantation = Plantation()
        with taken(planted, plantation) as messages:
            found: dict[int, str | None] = {}
            for _, item in decode_native.items(messages):
                assert not isinstance(item, Event)
                for outcome in item.runs():
                    if isinstance(outcome, PartitionFailed):
                        assert outcome.offset is not None
                        found[outcome.offset] = None
                        continue
                    outcome.batch.validate(full=True)
                    offsets, headers = (outcome.batch.column(name).to_pylist() for name in ("offset", "headers"))
                    found |= {at: pairs[0]["key"] for at, pairs in zip(offsets, headers, strict=True)}
        assert found == {at: decoded(name) for at, name in enumerate(names)}
        assert_all_destroyed(plantation, len(names))


def decoded(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def test_the_records_before_one_that_cannot_be_decoded_come_first() -> None:
    planted = [
        Planted(topic="t", partition=0, offset=at, value=b"v", headers=((b"\xff" if at == 3 else b"ok", b"x"),))
        for at in (1, 2, 3, 4)
    ]
    plantation = Plantation()
    with taken(planted, plantation) as messages:
        items = [item for _, item in decode_native.items(messages)]
        outcomes = [outcome for item in items if not isinstance(item, Event) for outcome in item.runs()]
    first, failed, later = outcomes
    assert isinstance(first, Run)
    assert isinstance(later, Run)
    assert isinstance(failed, PartitionFailed)
    assert (first.first_offset, first.last_offset, failed.offset, later.first_offset) == (1, 2, 3, 4)
    assert failed.reason.startswith(
        "the client cannot read the headers of the record at offset 3: the name of one is not UTF-8"
    )
    assert_all_destroyed(plantation, 4)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_offsets_always_rise_within_a_run(offsets: list[int]) -> None:
    """Whatever comes: a position that jumped back must not hide in a run."""
    plantation = Plantation()
    with taken([Planted(topic="t", partition=0, offset=at) for at in offsets], plantation) as messages:
        runs = [run for _, run in flat(decode_native.items(messages))]
    found = [offset for run in runs if isinstance(run, Run) for offset in run.batch.column("offset").to_pylist()]
    assert found == offsets


@pytest.mark.parametrize("hole", [range(5), range(6, 9), range(7, 8), range(9, 20), range(6, 7)])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_newer_leader_epoch_in_a_hole_is_found_alike(hole: range, epoch: int) -> None:
    planted = [Planted(topic="t", partition=0, offset=at, epoch=2) for at in (5, 7, 9)]
    plantation = Plantation()
    with taken(planted, plantation) as messages:
        ((_, ours),) = decode_native.items(messages)
        ((_, reference),) = decode.items([message(one) for one in planted])
        assert not isinstance(ours, Event)
        assert not isinstance(reference, Event)
        assert ours.newer_in(hole, epoch) == reference.newer_in(hole, epoch)


@pytest.mark.parametrize("code", [EOF, RESET])
def test_an_event_without_an_offset_has_offset_0(code: int) -> None:
    plantation = Plantation()
    with taken([Planted(topic="t", partition=0, offset=-1001, error=code)], plantation) as messages:
        ((_, event),) = decode_native.items(messages)
    assert isinstance(event, Event)
    assert event.offset == 0
    assert_all_destroyed(plantation, 1)
