"""Schemas of a registry as bytes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.packed import pack
from formats.control.schemas import (
    Schema,
    SchemaReference,
    SchemaSnapshot,
    SubjectVersion,
    decode_schemas,
    encode_schemas,
)
from formats.errors import MalformedEvent

T0 = datetime(2026, 1, 1, tzinfo=UTC)
words = st.text("ab.é", min_size=1, max_size=5)
references = st.builds(SchemaReference, name=words, subject=words, version=st.integers(1, 9))
some_schemas = st.builds(
    Schema,
    text=words,
    type=st.sampled_from(["AVRO", "JSON", "PROTOBUF"]),
    references=st.tuples() | st.tuples(references),
)


@st.composite
def snapshots(draw: st.DrawFn) -> SchemaSnapshot:
    schemas = draw(st.dictionaries(st.integers(0, 2**31), some_schemas, min_size=1, max_size=4))
    names = draw(st.lists(st.tuples(words, st.integers(1, 5)), unique=True, max_size=4))
    versions = [
        SubjectVersion(
            subject=subject, version=version, id=draw(st.sampled_from(sorted(schemas))), is_deleted=draw(st.booleans())
        )
        for subject, version in names
    ]
    return SchemaSnapshot(
        writer="w",
        observed_at=draw(st.datetimes(timezones=st.just(UTC))),
        schemas=schemas,
        versions=tuple(sorted(versions)),
        compatibility=draw(st.sampled_from(["", "FULL"])),
        subject_compatibility=draw(st.dictionaries(words, words, max_size=2)),
        problems=draw(st.dictionaries(words, words, max_size=2)),
    )


@given(snapshots())
def test_round_trip_in_the_same_bytes(found: SchemaSnapshot) -> None:
    data = encode_schemas(found)
    assert decode_schemas(data) == found
    assert encode_schemas(decode_schemas(data)) == data


ONE = SchemaSnapshot(
    writer="w",
    observed_at=T0,
    schemas={7: Schema(text='"string"')},
    versions=(SubjectVersion(subject="s", version=1, id=7),),
)


def test_the_observer_and_the_time_are_no_content() -> None:
    later = replace(ONE, writer="another", observed_at=T0 + timedelta(hours=1))
    assert ONE.has_same_content(later)
    assert not ONE.has_same_content(replace(later, compatibility="FULL"))
    hidden = (SubjectVersion(subject="s", version=1, id=7, is_deleted=True),)
    assert not ONE.has_same_content(replace(later, versions=hidden))


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        pack({"v": 2}),
        pack({"v": 1}),
        encode_schemas(ONE)[:-5],
        pack(
            {
                "v": 1,
                "writer": "w",
                "observed_at": T0.isoformat(),
                "compatibility": "",
                "schemas": {},
                "subjects": {"s": {"versions": [[1, 7, False]]}},
                "problems": {},
            }
        ),
    ],
    ids=["not packed", "newer", "incomplete", "cut", "an id without a schema"],
)
def test_what_cannot_be_decoded_says_so(data: bytes) -> None:
    with pytest.raises(MalformedEvent, match="not schemas of a registry"):
        decode_schemas(data)
