"""Region names that are probably mistyped, and those that are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.config import from_mapping
from replicator.config.across import between_files
from replicator.config.mistyped import meant
from tests.examples import property_examples

KNOWN = ("us-east-1", "eu-central-1", "dc-a", "backup")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("us-eest-1", "us-east-1"),
        ("us-esat-1", "us-east-1"),
        ("us-eaast-1", "us-east-1"),
        ("useast1", "us-east-1"),
        ("US_EAST_1", "us-east-1"),
        ("eu-centrl-1", "eu-central-1"),
        ("bakcup", "backup"),
        ("backups", "backup"),
        ("us-west-1", None),
        ("us-east-2", None),
        ("eu-east-1", None),
        ("dc-b", None),
        ("backup2", None),
        ("elsewhere", None),
        *((one, None) for one in KNOWN),
    ],
)
def test_a_slip_of_the_hand(name: str, wanted: str | None) -> None:
    assert meant(name, KNOWN) == wanted


@property_examples()
@given(st.from_regex(r"[a-z]{4,8}", fullmatch=True), st.integers(0, 7), st.sampled_from("abcxyz"))
def test_one_letter_more_less_or_other_is_a_slip(word: str, at: int, letter: str) -> None:
    at %= len(word)
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    changed = [word[:at] + letter + word[at + 1 :], word[:at] + letter + word[at:], swapped]
    changed += [word[:at] + word[at + 1 :]] if len(word) > 4 else []
    for one in changed:
        assert meant(one, [word]) == (word if one != word else None)


@pytest.mark.parametrize(("region", "count"), [("us-eest-1", 1), ("us-east-1", 0), ("us-west-1", 0)])
def test_several_files_find_a_mistyped_source(region: str, count: int) -> None:
    base = {"kafka": {"bootstrap.servers": "x:1"}, "s3": {"bucket": "a"}}
    source = from_mapping({**base, "region": "us-east-1", "egress": {"topics": {"orders": {}}}}, source="a.toml")
    there = {"sources": [{"region": region, "topic": "orders"}]}
    kafka = {"bootstrap.servers": "y:1"}
    target = from_mapping(
        {**base, "kafka": kafka, "region": "eu-west-1", "sqs": {"queue": "q"}, "ingress": there}, source="b.toml"
    )
    found = between_files([source, target])
    assert len(found) == count
    if count:
        assert found[0].startswith("b.toml: ingress.sources[0].region: no file is of region 'us-eest-1'")
        assert "did you mean 'us-east-1'" in found[0]
