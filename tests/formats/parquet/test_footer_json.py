from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from formats.errors import CorruptSegment
from formats.footer import STREAMS, SegmentFooter, SegmentOrigin
from formats.parquet import footer_json as footers
from formats.records.digest import EMPTY
from tests.formats.sample_records import BARE, ORIGIN, segment

FOOTER = SegmentFooter(
    segment=segment(0, 9),
    origin=ORIGIN,
    count=0,
    first_offset=None,
    last_offset=None,
    raw_bytes=0,
    largest_record_bytes=0,
    min_timestamp_ms=None,
    max_timestamp_ms=None,
    digest=EMPTY,
    keyless_count=0,
)


@pytest.mark.parametrize("origin", [ORIGIN, BARE])
def test_round_trip(origin: SegmentOrigin) -> None:
    footer = replace(FOOTER, origin=origin)
    assert footers.decode("x", footers.encode(footer)).footer == footer
    assert footers.decode("x", footers.encode(footer, [])).row_groups == ()
    uncounted = replace(footer, keyless_count=None)
    assert footers.decode("x", footers.encode(uncounted)).footer == uncounted


def test_a_footer_of_the_ancestor_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="digest"):
        footers.encode(replace(FOOTER, digest=None))


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(footers.encode(FOOTER)) | changes).encode()


def test_a_newer_version_says_found_and_wanted() -> None:
    with pytest.raises(CorruptSegment) as caught:
        footers.decode("the name", changed(v=2))
    assert caught.value.name == "the name"
    assert caught.value.found == "footer version 2"
    assert str(caught.value.wanted).startswith("version 1;")


@pytest.mark.parametrize("field", sorted(json.loads(footers.encode(FOOTER))))
def test_every_field_is_under_the_checksum(field: str) -> None:
    with pytest.raises(CorruptSegment):
        footers.decode("x", changed(**{field: 7}))
    value = json.loads(footers.encode(FOOTER))
    del value[field]
    with pytest.raises(CorruptSegment):
        footers.decode("x", json.dumps(value).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"7", b'"x"', b'{"v": 1}', b"\xff", b"[" * 100_000, b'{"v": 1, "checksum": []}']
)
def test_malformed_footers(data: bytes) -> None:
    with pytest.raises(CorruptSegment):
        footers.decode("x", data)


def signed(**changes: Any) -> bytes:
    """A footer with a valid checksum over invalid fields."""
    value = json.loads(footers.encode(FOOTER)) | changes
    del value["checksum"]
    return json.dumps(value | {"checksum": footers._checksum(value)}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"segment": "nonsense"},
        {"segment": 3},
        {"origin": {}},
        {"origin": None},
        {"digest": {}},
        {"digest": {"offset": "zz:1"}},
        {"count": "many"},
        {"count": 1},
        {"keyless_count": "none"},
        {"schema_ids": {"sampled": 1, "carrying": 2, "ids": [7]}},
        {"schema_ids": {"sampled": 1, "carrying": 1, "ids": []}},
        {"schema_ids": 7},
        {"row_groups": "!"},
        {"row_groups": "AAAA"},
        {"first_offset": 1},
    ],
)
def test_bad_fields_under_a_good_checksum(change: dict[str, Any]) -> None:
    assert footers.decode("x", signed()).footer == FOOTER
    with pytest.raises(CorruptSegment):
        footers.decode("x", signed(**change))


NUMBERS = ["count", "first_offset", "last_offset", "raw_bytes", "largest_record_bytes", "min_timestamp_ms"]
OF_ORIGIN = ["topic_id", "cluster_id", "source_partition_count", "isolation_level", "last_leader_epoch", "writer"]


@pytest.mark.parametrize("bad", ["5", 1.5, float("inf"), 2**63, True, [], {}, -(2**63) - 1])
@pytest.mark.parametrize("field", [*NUMBERS, "max_timestamp_ms", "keyless_count"])
def test_a_fact_of_another_type_is_corrupt_and_no_error_of_who_calculates_with_it(field: str, bad: object) -> None:
    with pytest.raises(CorruptSegment):
        footers.decode("x", signed(**{field: bad}))


@pytest.mark.parametrize("bad", [1.5, True, [], {}])
@pytest.mark.parametrize("field", [*OF_ORIGIN, "catalog_generation", "created_at"])
def test_an_origin_of_another_type_is_corrupt(field: str, bad: object) -> None:
    origin = json.loads(footers.encode(FOOTER))["origin"]
    with pytest.raises(CorruptSegment):
        footers.decode("x", signed(origin=origin | {field: bad}))


@pytest.mark.parametrize(
    "change",
    [
        {"fidelity": 5},
        {"schema_ids": {"sampled": float("inf"), "carrying": 1, "ids": [7]}},
        {"schema_ids": {"sampled": 1, "carrying": 1, "ids": [float("inf")]}},
        {"digest": dict.fromkeys(STREAMS, "-1:5")},
        {"digest": dict.fromkeys(STREAMS, f"{2**64:x}:5")},
        {"digest": dict.fromkeys(STREAMS, "1:-5")},
    ],
)
def test_facts_out_of_their_range_are_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptSegment):
        footers.decode("x", signed(**change))


def test_a_time_without_a_zone_is_corrupt() -> None:
    origin = json.loads(footers.encode(FOOTER))["origin"]
    with pytest.raises(CorruptSegment, match="no time zone"):
        footers.decode("x", signed(origin=origin | {"created_at": "2026-03-04T05:06:07"}))
