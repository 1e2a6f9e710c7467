from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.keys import (
    claim_key,
    compaction_runs_prefix,
    gap_key,
    is_control_key,
    is_of_either_side,
    is_of_one_bucket,
    offset_map_prefix,
    parse_offset_map_key,
)
from formats.errors import MalformedKey
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from tests.formats.messages.test_wire import NAME, SOURCES

SOURCE, OFFSETS = SourcePartition("a", "t", 0, "life"), OffsetRange(3, 4)


@pytest.mark.parametrize("prefix", ["", "data", "other/place"])
def test_control_keys_are_distinguished_from_segment_keys(prefix: str) -> None:
    assert is_control_key(prefix, gap_key(prefix, SOURCE, OFFSETS))
    assert is_control_key(prefix, claim_key(prefix, "b", "t@life"))
    assert not is_control_key(prefix, format_key(prefix, Segment(SOURCE, 0, OFFSETS)))
    assert not is_control_key(prefix or "data", claim_key("elsewhere", "b", "t"))


@pytest.mark.parametrize("prefix", ["", "data", "other/place"])
@given(st.builds(MapKey, st.builds(CheckpointKey, SOURCES, NAME), st.just("") | st.text("aZ09_-", min_size=1)))
def test_the_key_of_a_copy_of_an_offset_map_round_trips(prefix: str, key: MapKey) -> None:
    folder = offset_map_prefix(prefix, "b", key)
    assert parse_offset_map_key(prefix, "b", f"{folder}name") == (key, "name")
    assert parse_offset_map_key(prefix, "b", folder) == (key, "")
    assert is_control_key(prefix, folder)


FOLDER = "data/b/_control/v1/_offsetmap/a/t@life/0/b.t@id"


@pytest.mark.parametrize(
    "key",
    [
        FOLDER,  # a file there
        f"{FOLDER}/x/y",
        FOLDER.replace("/0/", "/00/") + "/x",
        FOLDER.replace("/0/", "/x/") + "/x",
        FOLDER.replace("t@life", "t@") + "/x",
        FOLDER.replace("b.t@id", "b.t") + "/x",
        FOLDER.replace("data/b", "data/c") + "/x",
    ],
)
def test_foreign_keys_beside_copies_of_offset_maps(key: str) -> None:
    parse_offset_map_key("data", "b", f"{FOLDER}/x")
    with pytest.raises(MalformedKey, match="not the key of a copy"):
        parse_offset_map_key("data", "b", key)


def test_copies_of_offset_maps_travel_with_their_region() -> None:
    name = FOLDER.removeprefix("data/") + "/x"
    assert not is_of_one_bucket(name)
    assert not is_of_either_side(name)


def test_what_concerns_one_bucket_does_not_travel() -> None:
    assert is_of_one_bucket(f"{compaction_runs_prefix('data', 'a').removeprefix('data/')}1")
