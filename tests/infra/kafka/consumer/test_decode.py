from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.records.schema import SCHEMA
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import Run
from infra.kafka.consumer.decode import Event, Item, MessageRecords, items, runs
from tests.contracts.consumer import check

Headers = list[tuple[str, bytes | None]]
EOF = KafkaError._PARTITION_EOF
CREATE, APPEND, NO_STAMP = 1, 2, 0  # librdkafka's numbers of timestamp types
INT64 = st.integers(-(2**63), 2**63 - 1)
DATA = st.none() | st.binary(max_size=20)
PAIRS = st.tuples(st.text(max_size=5), DATA)
HEADERS: st.SearchStrategy[Headers | None] = st.none() | st.lists(PAIRS, min_size=1, max_size=4)


def message(
    offset: int,
    *,
    topic: str = "t",
    partition: int = 0,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: Headers | None = None,
    timestamp: tuple[int, int] = (CREATE, 1),
    epoch: int | None = 3,
) -> Message[bytes, bytes]:
    """A real message of the client, as `consume` returns it."""
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=None if headers is None else [*headers],
        timestamp=timestamp,
        leader_epoch=epoch,
    )


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages of some partitions, each in rising offset order."""
    fields = st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b"]),
            "partition": st.integers(0, 2),
            "key": DATA,
            "value": DATA,
            "headers": HEADERS,
            "timestamp": st.tuples(st.sampled_from([NO_STAMP, CREATE, APPEND]), INT64),
        }
    )
    rows = draw(st.lists(fields, max_size=30))
    offset = draw(st.integers(0, 2**62))
    for row in rows:
        offset += draw(st.integers(1, 1000))
        row["offset"] = offset
    return rows


@settings(deadline=None)
@given(streams())
def test_every_field_of_every_record_is_in_its_run(rows: list[dict[str, Any]]) -> None:
    found: list[dict[str, Any]] = []
    for run in runs([message(**row) for row in rows]):
        assert isinstance(run, Run)
        check(run)
        assert run.last_leader_epoch == 3
        where = {"topic": run.partition.topic, "partition": run.partition.partition}
        stamps = run.batch.column("timestamp").view(pa.int64())
        for record in run.batch.set_column(1, "timestamp", stamps).to_pylist():
            pairs = record["headers"] and [(header["key"], header["value"]) for header in record["headers"]]
            found.append(where | record | {"headers": pairs})
    wanted = [{**row, "timestamp": row["timestamp"][1], "timestamp_type": row["timestamp"][0] - 1} for row in rows]
    for row in wanted:
        assert row in found
    for place in {(row["topic"], row["partition"]) for row in rows}:
        assert [r for r in found if (r["topic"], r["partition"]) == place] == [
            r for r in wanted if (r["topic"], r["partition"]) == place
        ]
    assert len(found) == len(wanted)


@settings(deadline=None)
@given(streams())
def test_a_partition_has_one_run_for_any_interleaving_of_records(rows: list[dict[str, Any]]) -> None:
    found = [run.partition for run in runs([message(**row) for row in rows])]
    assert len(found) == len(set(found))


def offsets(item: Item) -> list[int | None] | tuple[int, int]:
    """The offsets of the records, or offset and code of the error."""
    if isinstance(item, Event):
        return item.offset, item.error.code()
    assert isinstance(item, MessageRecords)
    return [message.offset() for message in item.messages]


def test_errors_split_the_records_of_their_partition_and_only_the_last_eof_counts() -> None:
    end, later = (Message(topic="t", partition=0, offset=at, error=KafkaError(EOF)) for at in (3, 9))
    gone = Message(topic="t", partition=0, offset=4, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    dead = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    other = message(1, partition=1)
    messages = [message(1), end, message(2), end, end, dead, other, message(3), gone, end, message(5), later, dead]
    found = [(where, offsets(item)) for where, item in items(messages)]
    first, second, client = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("", -1)
    assert [item for where, item in found if where == first] == [
        [1, 2, 3],
        (4, KafkaError.UNKNOWN_TOPIC_OR_PART),
        [5],
        (9, EOF),
    ]
    assert [item for where, item in found if where == second] == [[1]]
    assert [item for where, item in found if where == client] == [(0, KafkaError._ALL_BROKERS_DOWN)] * 2
    assert sorted(run.count for run in runs(messages) if isinstance(run, Run)) == [1, 1, 3]


def test_a_partition_eof_without_later_records_is_kept() -> None:
    end = Message(topic="t", partition=0, offset=3, error=KafkaError(EOF))
    gone = Message(topic="t", partition=0, offset=4, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    codes = [item.error.code() for _, item in items([end, gone]) if isinstance(item, Event)]
    assert codes == [EOF, KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_no_messages_no_runs() -> None:
    assert list(runs([])) == []
    assert list(items([])) == []


def test_the_schema_is_exact_without_headers_too() -> None:
    (run,) = runs([message(1), message(2)])
    assert isinstance(run, Run)
    assert run.batch.schema.equals(SCHEMA, check_metadata=True)
    assert run.batch.column("headers").null_count == 2
    run.batch.validate(full=True)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_state_of_garbage_collection_is_restored(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        list(runs([message(1, headers=[("a", b"b")])]))
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
