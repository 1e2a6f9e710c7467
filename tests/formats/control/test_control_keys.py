from __future__ import annotations

import pytest

from formats.control.keys import claim_key, gap_key, is_control_key
from formats.segment import OffsetRange, Segment, SourcePartition, format_key

SOURCE, OFFSETS = SourcePartition("a", "t", 0, "life"), OffsetRange(3, 4)


@pytest.mark.parametrize("prefix", ["", "data", "other/place"])
def test_control_keys_are_distinguished_from_segment_keys(prefix: str) -> None:
    assert is_control_key(prefix, gap_key(prefix, SOURCE, OFFSETS))
    assert is_control_key(prefix, claim_key(prefix, "b", "t@life"))
    assert not is_control_key(prefix, format_key(prefix, Segment(SOURCE, 0, OFFSETS)))
    assert not is_control_key(prefix or "data", claim_key("elsewhere", "b", "t"))
