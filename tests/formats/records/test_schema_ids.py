"""Ids of schemas in values, by columns: as one by one, and never of more than a sample."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from formats.footer import MOST_IDS, SchemaIds
from formats.records.schema_ids import SAMPLE_OF_BATCH, SAMPLE_RECORDS, SchemaIdSample
from tests.examples import property_examples
from tests.formats.sample_records import Row, batch_of


def value(number: int, rest: bytes = b"x") -> bytes:
    return b"\0" + number.to_bytes(4) + rest


some_values = st.none() | st.binary(max_size=8) | st.builds(value, st.integers(0, 5), st.binary(max_size=3))


def row(offset: int, one: bytes | None) -> Row:
    return {"offset": offset, "timestamp": 0, "timestamp_type": 0, "key": None, "value": one, "headers": None}


def sampled(*batches: list[bytes | None]) -> SchemaIds | None:
    sample = SchemaIdSample()
    for values in batches:
        sample.update(batch_of([row(n, one) for n, one in enumerate(values)]))
    return sample.found


@property_examples()
@given(first=st.lists(some_values), second=st.lists(some_values))
@example(first=[value(7)], second=[])
def test_every_value_of_the_sample_is_counted_as_one_by_one(
    first: list[bytes | None], second: list[bytes | None]
) -> None:
    values = [one for one in [*first, *second] if one is not None]
    carried = [int.from_bytes(one[1:5]) for one in values if len(one) > 5 and one[0] == 0]
    carried = [number for number in carried if number]
    found = sampled(first, second)
    if not carried:
        assert found is None
    else:
        assert found == SchemaIds(sampled=len(values), carrying=len(carried), ids=tuple(sorted(set(carried))))


def test_a_batch_that_is_a_slice_is_read_from_where_it_begins() -> None:
    batch = batch_of([row(n, value(n)) for n in range(1, 9)])
    sample = SchemaIdSample()
    sample.update(batch.slice(3, 2))
    assert sample.found == SchemaIds(sampled=2, carrying=2, ids=(4, 5))


def test_only_a_sample_is_read() -> None:
    large: list[bytes | None] = [value(1)] * (SAMPLE_OF_BATCH + 1)
    found = sampled(*[large] * 50)
    assert found == SchemaIds(sampled=SAMPLE_RECORDS, carrying=SAMPLE_RECORDS, ids=(1,))


def test_only_so_many_ids_are_kept_and_all_are_counted() -> None:
    found = sampled([value(number) for number in range(1, MOST_IDS + 11)])
    assert found is not None
    assert (found.carrying, found.ids) == (MOST_IDS + 10, tuple(range(1, MOST_IDS + 1)))
