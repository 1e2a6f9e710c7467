"""Archive paths of topics are a bijection, and one of them is current."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedKey
from formats.incarnation import (
    CONTROL,
    Incarnation,
    current,
    fork_id,
    fork_number,
    generated_id,
    is_current,
    later_ids,
    later_paths,
    newest_fork,
    newest_generated,
    parse_incarnation,
)

TOPICS = st.text("abXY09._-", min_size=1, max_size=12).filter(lambda name: name not in (".", "..", CONTROL))
IDS = st.text("abz09_-", min_size=1, max_size=30)
INCARNATIONS = st.builds(Incarnation, TOPICS, st.just("") | IDS)


@given(INCARNATIONS)
def test_a_path_is_parsed_as_it_is_written(incarnation: Incarnation) -> None:
    assert parse_incarnation(incarnation.path) == incarnation
    assert str(incarnation) == incarnation.path


@given(INCARNATIONS, INCARNATIONS)
def test_two_incarnations_never_share_a_path(a: Incarnation, b: Incarnation) -> None:
    assert (a.path == b.path) == (a == b)


@given(st.text("ab@._-/ \n", max_size=8) | st.text(max_size=8))
def test_any_other_text_is_malformed_or_formats_back(text: str) -> None:
    try:
        incarnation = parse_incarnation(text)
    except MalformedKey as error:
        assert repr(text) in str(error)  # noqa: PT017
        return
    assert incarnation.path == text


NO_NAMES = ["", ".", "..", "_control", "a b", "a/b", "t" * 250]
NO_IDS = ["", "a@b", "a.b", "a/b", "i" * 65]


NO_PATHS = [*NO_NAMES, *(f"{name}@id" for name in NO_NAMES), *(f"t@{id_}" for id_ in NO_IDS), "@"]


@pytest.mark.parametrize("path", NO_PATHS)
def test_malformed_paths(path: str) -> None:
    with pytest.raises(MalformedKey, match="not the archive path of a topic"):
        parse_incarnation(path)


def test_paths_are_the_documented_ones() -> None:
    assert Incarnation("orders").path == "orders"
    assert Incarnation("orders", "Zm9v-mFyLXRvcGljLWlkMg").path == "orders@Zm9v-mFyLXRvcGljLWlkMg"
    assert Incarnation("orders", fork_id("Zm9v", 2)).path == "orders@Zm9v-fork2"
    assert Incarnation("orders", generated_id("lkc-1/x.y", 3)).path == "orders@lkc-1_x_y-3"


@given(st.lists(INCARNATIONS), TOPICS)
def test_later_ids_are_those_of_the_topic(known: list[Incarnation], topic: str) -> None:
    wanted = [one.id for one in known if one.topic == topic and one.id]
    assert later_ids([one.path for one in known], topic) == wanted
    assert [one.id for one in known if one.path.startswith(later_paths(topic))] == wanted


@given(IDS, st.integers(1, 999_999))
def test_a_fork_is_known_by_its_number(topic_id: str, number: int) -> None:
    assert fork_number(fork_id(topic_id, number)) == number
    assert Incarnation("t", fork_id(topic_id, number)).topic_id == Incarnation("t", topic_id).topic_id == topic_id
    assert newest_fork([topic_id, fork_id(topic_id, number), fork_id(f"{topic_id}x", number + 1)], topic_id) == number


@given(st.text(min_size=1, max_size=60), st.lists(st.integers(0, 99), min_size=1))
def test_generated_ids_are_counted_by_cluster(cluster_id: str, numbers: list[int]) -> None:
    ids = [generated_id(cluster_id, number) for number in numbers]
    assert newest_generated([*ids, generated_id(f"x{cluster_id}", 100)], cluster_id) == generated_id(
        cluster_id, max(numbers)
    )
    assert all(Incarnation("t", one).id == one for one in ids), "fit for a path"


class TestCurrent:
    def test_by_topic_id(self) -> None:
        assert self.of("id-t", None, []) == ""
        assert self.of("id-t", "id-t", []) == ""
        assert self.of("id-t", "earlier", []) == "id-t"

    def test_after_the_last_fork(self) -> None:
        paths = ["t", "t@id-t-fork1", "t@id-t-fork2", "t@other-fork3", "tt@id-t-fork4"]
        assert self.of("id-t", "id-t", paths) == "id-t-fork2"
        assert self.of("id-t", "earlier", ["t", "t@id-t"]) == "id-t"

    def test_its_own_path_where_the_claim_of_the_plain_one_is_lost(self) -> None:
        assert self.of("id-t", None, ["t@id-t"]) == "id-t"
        assert self.of("id-t", None, ["t@other"]) == ""

    def test_without_topic_ids_the_newest_of_this_cluster(self) -> None:
        paths = ["t", "t@cluster-2", "t@cluster-10", "t@other-11", "tt@cluster-12"]
        assert self.of("", "cluster-0", paths) == "cluster-10"
        assert self.of("", "cluster-0", ["t"]) == ""
        assert self.of("", "cluster-0", ["t@cluster2-9"]) == ""
        assert self.of("", "a_b-0", ["t@a_b-1"], cluster_id="a.b") == "a_b-1"

    def test_without_topic_ids_and_without_a_claim_the_plain_path(self) -> None:
        assert self.of("", None, ["u@cluster-1"]) == ""

    @staticmethod
    def of(topic_id: str, first_id: str | None, claimed: list[str], *, cluster_id: str = "cluster") -> str:
        return current("t", topic_id, cluster_id, first_id=first_id, claimed=claimed).id


CLAIMED = ["t", "t@id", "t@id-fork1", "t@id-fork2", "t@other-fork1", "t@c-1", "t@c-2", "t@d-3", "u@id-fork9"]


@given(st.sampled_from(["", "id", "other"]), st.sampled_from([None, "id", "c-0"]), st.sets(st.sampled_from(CLAIMED)))
def test_the_current_incarnation_is_the_last(topic_id: str, first_id: str | None, claimed: set[str]) -> None:
    now = current("t", topic_id, "c", first_id=first_id, claimed=claimed)
    assert is_current(now, topic_id, "c", claimed)
    later = Incarnation("t", fork_id(topic_id, now.fork + 1) if topic_id else "c-3")
    assert not is_current(now, topic_id, "c", {*claimed, later.path})
    assert is_current(later, topic_id, "c", claimed), "known before it was listed"
