from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from formats.errors import CorruptSegment
from formats.footer import SegmentFooter, SegmentOrigin
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
