"""What the ledger's records say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import TargetError
from formats.messages.ledger import (
    CreationIntent,
    Failover,
    FailoverPhase,
    GroupHold,
    LedgerEntry,
    OwnedAcl,
    OwnedTopic,
    TakenBack,
    acl_key,
    encode,
    encode_key,
    ownership,
)
from formats.policies.acls import AclBinding
from tests.examples import property_examples

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ACL = AclBinding(
    resource_type="TOPIC",
    resource_name="copy",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)
words = st.text("ab.é", min_size=1, max_size=4)
times = st.datetimes(timezones=st.just(UTC))
topics = st.builds(
    OwnedTopic,
    name=words,
    topic_id=words | st.just(""),
    source=words,
    at=times,
    lineage=st.lists(words, max_size=2).map(tuple),
    is_copied=st.booleans(),
    copied_at=st.none() | times,
    oldest_at=st.none() | times,
    configs=st.none() | st.lists(words, max_size=2).map(tuple),
)
groups = st.lists(words, max_size=2).map(tuple)
failovers = st.builds(
    Failover,
    region=words,
    epoch=st.integers(1, 9),
    phase=st.sampled_from(FailoverPhase),
    at=times,
    snapshot=st.integers(0, 9),
    left=groups,
    handover=st.integers(0, 9),
)
taken_back = st.builds(
    TakenBack, region=words, handover=st.integers(1, 9), at=times, left=groups, made_at=st.none() | times
)
entries: st.SearchStrategy[LedgerEntry] = (
    st.builds(CreationIntent, name=words, at=times)
    | topics
    | st.builds(OwnedAcl, binding=st.just(ACL), at=times)
    | failovers
    | taken_back
)


@property_examples()
@given(st.lists(entries))
def test_the_last_entry_of_a_key_counts(written: list[LedgerEntry]) -> None:
    found, problem = ownership((encode_key(one), encode(one)) for one in written)
    assert problem == ""
    assert found.intents == {one.name: one for one in written if isinstance(one, CreationIntent)}
    assert found.topics == {(one.name, one.topic_id): one for one in written if isinstance(one, OwnedTopic)}
    assert found.acls == {one.binding for one in written if isinstance(one, OwnedAcl)}
    assert found.failovers == {one.region: one for one in written if isinstance(one, Failover)}
    assert found.taken_back == {one.region: one for one in written if isinstance(one, TakenBack)}


def test_a_record_without_a_value_disowns() -> None:
    records = [(acl_key(ACL), encode(OwnedAcl(binding=ACL, at=T0))), (acl_key(ACL), None)]
    assert ownership(records)[0].acls == frozenset()


def test_two_incarnations_of_a_topic_are_two() -> None:
    first = OwnedTopic(name="copy", topic_id="1", source="a/t", at=T0)
    found, _ = ownership([(encode_key(first), encode(first))])
    assert found.topic("copy", "1") == first
    assert found.topic("copy", "2") is None, "somebody created it anew"


@pytest.mark.parametrize(
    "key", [b"", b"rubbish", b'{"kind":"other"}', b'{"kind":"topic","name":"t"}', b'{"kind":"acl"}']
)
def test_what_is_not_ours_owns_nothing_and_is_reported(key: bytes) -> None:
    good = CreationIntent(name="copy", at=T0)
    found, problem = ownership([(key, b"{}"), (encode_key(good), encode(good))])
    assert "not an entry of the ledger" in problem or "not the" in problem
    assert found.intents == {"copy": good}
    assert not found.topics
    assert not found.acls


@pytest.mark.parametrize(
    "entry",
    [
        CreationIntent(name="copy", at=T0),
        OwnedTopic(name="copy", topic_id="1", source="a/t", at=T0),
        OwnedAcl(binding=ACL, at=T0),
    ],
)
def test_an_entry_of_another_version_owns_nothing_and_is_reported(entry: LedgerEntry) -> None:
    found, problem = ownership([(encode_key(entry), encode(entry).replace(b'"v":1', b'"v":2'))])
    assert found == ownership([])[0]
    assert "version 2" in problem


NEWER = (b'"v":1', b'"v":2')


def test_a_failover_that_cannot_be_read_is_not_taken_for_none() -> None:
    """The source would move the groups again whose consumers are here, and change their topics."""
    entry = Failover(region="us", epoch=1, phase=FailoverPhase.ACTIVE, at=T0)
    before = replace(entry, phase=FailoverPhase.FAILED_BACK)
    found, problem = ownership(
        [(encode_key(before), encode(before)), (encode_key(entry), encode(entry).replace(*NEWER))]
    )
    assert "version 2" in problem
    assert found.why_held("us").startswith("whether there was a failover from us is not known")
    assert found.why_held("eu") == ""
    with pytest.raises(TargetError, match="whether there was a failover from us is not known"):
        found.failover_of("us")
    assert found.failover_of("eu") is None
    read, _ = ownership([(encode_key(entry), encode(entry))])
    assert (read.failover_of("us"), read.why_held("us")[:19]) == (entry, "failed over from us")
    assert ownership([(encode_key(before), encode(before))])[0].why_held("us") == ""


def test_a_hold_that_cannot_be_read_holds() -> None:
    entry = GroupHold(group="g", topic="copy", is_held=False, at=T0)
    assert ownership([(encode_key(entry), encode(entry))])[0].held == frozenset()
    assert ownership([(encode_key(entry), encode(entry).replace(*NEWER))])[0].held == {("g", "copy")}
    for key in (b'{"kind":"hold"}', b'{"kind":"failover"}', b"[]", b"\xff"):
        found, problem = ownership([(key, b"{}")])
        assert problem
        assert (found.held, found.unreadable) == (frozenset(), {})
