"""The order of a topic's incarnations, and when the next one follows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.claim import TopicClaim
from formats.incarnation import Incarnation, parse_incarnation
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import SourcePartition
from ingress.routing.succession import (
    ArchivedIncarnation,
    Succession,
    SuccessionStep,
    Switch,
    current_source,
    in_order,
    succession_step,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN, A, B = (SourcePartition("a", "t", 0, id_) for id_ in ("", "A", "B"))


def archived(incarnation: str, number: int | None) -> ArchivedIncarnation:
    claim = None if number is None else TopicClaim(topic_id="x", cluster_id="c", number=number, claimed_at=T0)
    return ArchivedIncarnation(incarnation=Incarnation("t", incarnation), claim=claim)


def test_archive_paths_are_incarnations() -> None:
    incarnations = [ArchivedIncarnation(incarnation=parse_incarnation(path)) for path in ("t", "t@id")]
    assert incarnations == [archived("", None), archived("id", None)]
    assert [one.path for one in incarnations] == ["t", "t@id"]
    assert incarnations[1].source("a", 3) == SourcePartition("a", "t", 3, "id")


@given(st.permutations([("", 0), ("C", 1), ("A", 2), ("B", 3)]), st.sets(st.sampled_from(["A", "B", "C"])))
def test_only_what_is_certain_is_ordered(claims: list[tuple[str, int]], unclaimed: set[str]) -> None:
    """Whichever claims are missing: the incarnations before the first missing one, and no other."""
    ordered, unordered = in_order(archived(name, None if name in unclaimed else number) for name, number in claims)
    order = ["", "C", "A", "B"]
    certain = order[: min((order.index(name) for name in unclaimed), default=4)]
    assert [one.id for one in ordered] == certain
    assert {one.id for one in unordered} == set(order) - set(certain)


def test_reasons_name_what_is_missing() -> None:
    _, unordered = in_order([archived("", 0), archived("A", None), archived("B", 2)])
    reasons = {one.id: reason for one, reason in unordered.items()}
    assert "its claim _control/v1/places/t@A is missing" in reasons["A"]
    assert "the incarnation with the number 1, before its 2" in reasons["B"]
    assert all("on_recreate = 'new-topic'" in reason for reason in reasons.values())


def test_two_claims_of_one_number_are_not_ordered() -> None:
    ordered, unordered = in_order([archived("", 0), archived("A", 1), archived("B", 1), archived("C", 2)])
    assert [one.id for one in ordered] == [""]
    assert "t@A, t@B have the same number" in unordered[archived("B", 1)]
    assert "before its 2" in unordered[archived("C", 2)]


def test_plain_path_whose_claim_cannot_be_read_is_not_taken_for_the_first() -> None:
    ordered, unordered = in_order(
        [ArchivedIncarnation(incarnation=Incarnation("t"), is_readable=False), archived("A", 1)]
    )
    assert (list(ordered), len(unordered)) == ([], 2)


def test_plain_path_without_a_claim_is_the_first() -> None:
    """An ancestor's archive has no claims."""
    ordered, unordered = in_order([archived("A", 1), archived("", None)])
    assert ([one.id for one in ordered], unordered) == (["", "A"], {})


def checkpoint(topic_id: str) -> Checkpoint:
    return Checkpoint(5, topic_id, T0)


@pytest.mark.parametrize(
    ("delivered", "known", "wanted"),
    [
        (PLAIN, {}, PLAIN),
        (PLAIN, {PLAIN: "here"}, PLAIN),
        (PLAIN, {PLAIN: "here", A: "here"}, A),
        (PLAIN, {B: "here", A: "here"}, B),
        (A, {PLAIN: "here"}, A),  # turned to a moment ago
        (PLAIN, {PLAIN: "here", A: "gone"}, PLAIN),  # an operator begins anew in a new destination
        (PLAIN, {PLAIN: "gone", A: "gone"}, A),
        (PLAIN, {PLAIN: "here", A: ""}, A),
    ],
)
def test_current_incarnation_is_the_last_that_was_begun(
    delivered: SourcePartition, known: dict[SourcePartition, str], wanted: SourcePartition
) -> None:
    checkpoints = {source: checkpoint(topic_id) for source, topic_id in known.items()}
    assert current_source(delivered, [PLAIN, A, B], checkpoints, "here") == wanted


def test_next_incarnation_waits_for_a_listing_begun_after_it_settled() -> None:
    settled_at, second = T0 + timedelta(minutes=30), timedelta(seconds=1)

    def at(now: datetime, listed_at: datetime | None, *, exhausted: bool = True) -> SuccessionStep:
        return succession_step(now, exhausted=exhausted, listed_at=listed_at, settled_at=settled_at)

    assert at(settled_at - second, T0) is SuccessionStep.WAIT
    assert at(settled_at, None) is SuccessionStep.LIST
    assert at(settled_at, settled_at - second) is SuccessionStep.LIST
    assert at(settled_at + second, settled_at) is SuccessionStep.FOLLOW
    assert at(settled_at + second, settled_at, exhausted=False) is SuccessionStep.WAIT
    assert succession_step(T0, exhausted=True, listed_at=T0, settled_at=None) is SuccessionStep.WAIT


THREE = Succession(region="a", partition=0, incarnations=[archived("", 0), archived("A", 1), archived("B", 2)])
positions = st.dictionaries(
    st.sampled_from([PLAIN, A, B]),
    st.builds(Checkpoint, st.integers(1, 100), st.sampled_from(["here", "gone"]), st.just(T0)),
)


@given(st.sampled_from([PLAIN, A, B]), positions)
def test_a_switch_goes_forward_and_accounts_for_what_lies_between(
    delivered: SourcePartition, known: dict[SourcePartition, Checkpoint]
) -> None:
    sources = list(THREE.sources)
    assert sources == [PLAIN, A, B]
    switch, wanted = THREE.switch_to_begun(delivered, known, "here"), current_source(delivered, sources, known, "here")
    if switch is None:
        assert wanted == delivered
        return
    assert switch.source == wanted
    before = sources[sources.index(delivered) : sources.index(wanted)]
    assert before
    assert switch.finished == {s: known[s].next_offset if s in known else 0 for s in before}


def test_what_is_delivered_is_followed_by_its_successor() -> None:
    assert [THREE.successor_of(source) for source in THREE.sources] == [archived("A", 1), archived("B", 2), None]
    assert THREE.switch_to_successor(A, archived("B", 2), 7) == Switch(source=B, finished={A: 7})
