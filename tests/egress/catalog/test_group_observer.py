"""What a snapshot of the source's groups holds, and what stays in it of those that cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.catalog.group_observer import NOT_LISTED, OTHERS_EVERY, GroupObserver
from egress.catalog.observer import SelectedTopics
from formats.control.group_snapshot import CONSUMER, CommittedOffset, GroupSnapshot, TopicCommits
from formats.errors import BrokerUnavailable
from infra.contracts.cluster import Committed, TopicFacts, TopicPartition
from infra.runtime.call_budget import CallBudget
from infra.runtime.lifecycle import Stop
from tests.egress.catalog.interrupted_admin import InterruptedAdmin
from tests.fakes.executors import HandExecutor
from tests.fakes.kafka_admin import FakeAdmin
from tests.fakes.kafka_consumer import FakeBroker
from tests.fakes.kafka_groups import FakeGroup, FakeGroupReader
from tests.fakes.surroundings import HandClock

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
T, U = (TopicPartition(name, 0) for name in "tu")
ANOTHER = TopicPartition("other", 0)  # of a topic that is not archived


class PartialListing(FakeAdmin):
    def topics(self) -> Mapping[str, TopicFacts]:
        return {name: facts for name, facts in super().topics().items() if name != "u"}


@dataclass
class World:
    """Topics t, with two partitions, u, and `other`, which is not archived."""

    broker: FakeBroker = field(default_factory=FakeBroker)
    groups: FakeGroupReader = field(default_factory=FakeGroupReader)
    clock: HandClock = field(default_factory=HandClock)
    stop: Stop = field(default_factory=Stop)
    named: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ("ours",)
    topics: tuple[str, ...] = ("t", "u")

    def __post_init__(self) -> None:
        self.admin = FakeAdmin(self.broker)
        self.shapes = InterruptedAdmin(self.admin)
        self.shapes.meanwhile = lambda: None
        for name, partitions in (("t", 2), ("u", 1), ("other", 1)):
            self.broker.create(name, partitions=partitions)
        self.observer = self.process()
        self.before: GroupSnapshot | None = None

    def process(self) -> GroupObserver:
        return GroupObserver(
            topics=SelectedTopics(self.admin, self.shapes, lambda names: [n for n in names if n in self.topics]),
            groups=self.groups,
            select=self.select,
            named=lambda: self.named,
            budget=CallBudget(lambda: 10**9, self.clock, self.stop),
            pool=HandExecutor(),
            writer="w",
        )

    def select(self, names: Iterable[str]) -> Collection[str]:
        return [name for name in names if name not in self.excluded]

    def commit(self, group_id: str, **offsets: int) -> None:
        """In partition 0 of these topics."""
        commits = {TopicPartition(name, 0): Committed(offset, "") for name, offset in offsets.items()}
        self.groups.found.setdefault(group_id, FakeGroup()).offsets.update(commits)

    def observe(self) -> GroupSnapshot:
        """A minute later; the generation after the one before."""
        self.clock.at += MINUTE
        self.before = self.observer.observe(self.before, self.clock.now())
        return self.before


@pytest.fixture
def world() -> World:
    return World()


def offsets(found: GroupSnapshot) -> Mapping[str, Mapping[str, int]]:
    """Of partition 0, by group and topic."""
    return {
        group_id: {name: one.next_offsets[0] for name, one in group.topics.items()}
        for group_id, group in found.groups.items()
    }


class TestContent:
    def test_offsets_state_and_members_of_each_group(self, world: World) -> None:
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        world.groups.found = {
            "empty": FakeGroup(offsets={second: Committed(7, "note", 3)}),
            "new": FakeGroup(CONSUMER, 2, {first: Committed(0, ""), second: Committed(5, ""), U: Committed(1, "")}),
        }
        found = world.observe()
        assert (found.cluster_id, found.writer, found.observed_at) == ("cluster", "w", world.clock.at)
        assert (found.problems, found.unreadable, found.unsupported) == ({}, {}, {})
        empty, new = found.groups["empty"], found.groups["new"]
        assert (empty.kind, empty.state, empty.members) == ("classic", "empty", 0)
        assert empty.topics == {
            "t": TopicCommits.of("id-t", {1: CommittedOffset(next_offset=7, leader_epoch=3, metadata="note")})
        }
        assert (new.kind, new.state, new.members) == ("consumer", "stable", 2)
        assert new.topics["t"].next_offsets == (0, 5)
        assert new.topics["u"].topic_id == "id-u"

    def test_it_says_until_when_offsets_were_read(self, world: World) -> None:
        world.commit("one", t=1)
        began = world.clock.at + MINUTE

        def passes() -> None:
            world.clock.at += SECOND

        world.shapes.meanwhile = passes
        found = world.observe()
        assert found.observed_at == began
        assert found.read_until == found.known_at == world.clock.at > began

    def test_only_groups_with_an_offset_in_an_archived_topic(self, world: World) -> None:
        world.commit("one", t=1, other=5)
        world.groups.found["elsewhere"] = FakeGroup(offsets={ANOTHER: Committed(5, "")})
        world.groups.found["nothing"] = FakeGroup(members=1)
        assert offsets(world.observe()) == {"one": {"t": 1}}

    def test_only_selected_groups_are_asked_about(self, world: World) -> None:
        world.commit("ours", t=1)
        world.commit("mine", t=1)
        assert list(world.observe().groups) == ["mine"]
        assert world.groups.asked["facts"] == world.groups.asked["committed"] == 1

    def test_a_group_that_is_gone_is_left_out(self, world: World) -> None:
        world.commit("one", t=1)
        world.commit("two", t=2)
        world.observe()
        del world.groups.found["one"]
        found = world.observe()
        assert (offsets(found), found.unreadable) == ({"two": {"t": 2}}, {})

    def test_a_group_that_is_excluded_now_is_left_out(self, world: World) -> None:
        world.commit("one", t=1)
        world.observe()
        world.excluded = ("one",)
        assert world.observe().groups == {}

    def test_a_group_that_is_excluded_now_is_not_asked_about_though_it_cannot_be_described(self, world: World) -> None:
        world.commit("one", t=1)
        world.observe()
        world.excluded, world.groups.hides, world.groups.refuses["one"] = ("one",), {"one"}, "refused"
        found = world.observe()
        assert (found.groups, found.unreadable) == ({}, {})

    def test_a_group_whose_offsets_have_expired_is_left_out(self, world: World) -> None:
        world.commit("one", t=1)
        world.observe()
        world.groups.found["one"].offsets.clear()
        found = world.observe()
        assert (found.groups, found.unreadable) == ({}, {})

    def test_many_groups_are_read_on_threads(self, world: World) -> None:
        for n in range(50):
            world.commit(f"g{n}", t=n)
        with ThreadPoolExecutor(4) as pool:
            world.observer.pool = pool
            assert offsets(world.observe()) == {f"g{n}": {"t": n} for n in range(50)}


class TestTopics:
    def test_a_topic_that_is_deleted_takes_its_offsets_along(self, world: World) -> None:
        world.commit("one", t=1, u=2)
        world.commit("two", u=2)
        world.observe()
        world.broker.delete("u")
        found = world.observe()
        assert (offsets(found), found.problems) == ({"one": {"t": 1}}, {})

    def test_a_topic_that_is_excluded_now_is_left_out(self, world: World) -> None:
        world.commit("one", t=1, u=2)
        world.observe()
        world.topics = ("t",)
        assert offsets(world.observe()) == {"one": {"t": 1}}

    def test_offsets_have_the_id_of_the_topic_that_is_created_again(self, world: World) -> None:
        world.commit("one", t=1)
        assert world.observe().groups["one"].topics["t"].topic_id == "id-t"
        world.broker.delete("t")
        world.broker.create("t", partitions=1)
        world.commit("one", t=0)
        topic = world.observe().groups["one"].topics["t"]
        assert (topic.topic_id, topic.next_offsets) == (world.admin.describe(["t"])["t"].topic_id, (0,))
        assert topic.topic_id != "id-t"

    def test_a_topic_that_is_created_again_meanwhile_is_left_out_until_the_next_time(self, world: World) -> None:
        world.commit("one", t=1, u=2)
        world.observe()

        def again() -> None:
            world.broker.delete("t")
            world.broker.create("t", partitions=1)
            world.commit("one", t=0)

        world.shapes.meanwhile = again
        assert offsets(world.observe()) == {"one": {"u": 2}}
        assert offsets(world.observe()) == {"one": {"t": 0, "u": 2}}

    def test_a_topic_that_may_not_be_described_any_more_keeps_its_offsets(self, world: World) -> None:
        world.commit("one", t=1, u=2)
        world.commit("two", u=9)
        first = world.observe()
        world.admin.hides["u"] = "allow DESCRIBE on the topic"
        world.commit("one", t=5, u=6)
        found = world.observe()
        assert offsets(found) == {"one": {"t": 5, "u": 2}, "two": {"u": 9}}
        assert found.problems == {"topics": "of 1 topics, first u: allow DESCRIBE on the topic"}
        assert found.groups["one"].topics["u"].as_of == first.observed_at
        assert found.groups["one"].topics["t"].as_of is None
        del world.admin.hides["u"]
        found = world.observe()
        assert (offsets(found), found.problems) == ({"one": {"t": 5, "u": 6}, "two": {"u": 9}}, {})

    def test_a_topic_that_one_listing_lacks_keeps_its_offsets(self, world: World) -> None:
        """A broker that has just started may list a part of the topics, while another one describes them all."""
        world.commit("g", t=5, u=7)
        world.observe()
        whole = world.observer.topics
        world.observer.topics = replace(whole, admin=PartialListing(world.broker))
        assert offsets(world.observe()) == {"g": {"t": 5, "u": 7}}
        world.observer.topics = whole
        world.broker.delete("u")
        assert offsets(world.observe()) == {"g": {"t": 5}}

    def test_without_a_topic_that_may_be_described_nothing_is_lost(self, world: World) -> None:
        world.commit("one", t=1)
        world.observe()
        world.admin.hides.update(t="no right", u="no right")
        assert offsets(world.observe()) == {"one": {"t": 1}}


class TestErrors:
    """An error is no absence, and concerns no other group."""

    REFUSED = "describe group one: refused; allow DESCRIBE on the group"

    def test_a_group_that_may_not_be_described_from_the_start(self, world: World) -> None:
        world.commit("one", t=1)
        world.commit("two", t=2)
        world.groups.refuses["one"] = self.REFUSED
        found = world.observe()
        assert offsets(found) == {"two": {"t": 2}}
        assert found.unreadable == {"one": self.REFUSED}
        assert found.problems == {"groups": f"of 1 groups, first one: {self.REFUSED}"}

    @pytest.mark.parametrize("hidden", [False, True], ids=["it is listed", "it is not listed, either"])
    def test_a_group_that_may_not_be_described_any_more(self, world: World, hidden: bool) -> None:
        world.commit("one", t=1)
        world.commit("two", t=2)
        first = world.observe()
        world.groups.refuses["one"] = self.REFUSED
        world.groups.hides |= {"one"} if hidden else set()
        world.commit("one", t=8)
        world.commit("two", t=9)
        for _ in range(3):
            found = world.observe()
            assert offsets(found) == {"one": {"t": 1}, "two": {"t": 9}}
            assert found.unreadable == {"one": self.REFUSED}
            assert (found.groups["one"].as_of, found.groups["two"].as_of) == (first.observed_at, None)
        world.groups.refuses.clear()
        world.groups.hides.clear()
        found = world.observe()
        assert (offsets(found), found.unreadable) == ({"one": {"t": 8}, "two": {"t": 9}}, {})
        assert found.groups["one"].as_of is None

    def test_a_coordinator_that_does_not_answer(self, world: World) -> None:
        world.commit("one", t=1)
        world.commit("two", t=2)
        first = world.observe()
        world.groups.lost = {"one"}
        found = world.observe()
        assert offsets(found) == {"one": {"t": 1}, "two": {"t": 2}}
        assert (list(found.unreadable), found.groups["one"].as_of) == (["one"], first.observed_at)

    def test_offsets_are_as_of_the_last_time_that_they_were_read_though_no_generation_was_put(
        self, world: World
    ) -> None:
        world.commit("one", t=1)
        generation = world.observe()
        for _ in range(5):
            world.before = generation  # the content is the same
            world.observe()
        last = world.clock.at
        world.before = generation
        world.groups.lost = {"one"}
        assert world.observe().groups["one"].as_of == last

    def test_another_process_takes_over_what_the_generation_has(self, world: World) -> None:
        world.commit("one", t=1)
        first = world.observe()
        world.observer = world.process()
        world.groups.lost = {"one"}
        found = world.observe()
        assert (offsets(found), found.groups["one"].as_of) == ({"one": {"t": 1}}, first.observed_at)

    def test_a_newer_generation_of_another_process_counts(self, world: World) -> None:
        world.commit("one", t=1)
        world.commit("two", t=1)
        world.observe()
        other = world.process()
        world.clock.at += MINUTE
        world.commit("one", t=5)
        del world.groups.found["two"]
        world.before = other.observe(world.before, world.clock.at)
        world.groups.lost = {"one", "two"}
        assert offsets(world.observe()) == {"one": {"t": 5}}

    def test_an_incomplete_listing_loses_no_group(self, world: World) -> None:
        world.commit("one", t=1)
        world.commit("two", t=2)
        world.observe()
        world.groups.hides, world.groups.incomplete = {"one"}, "a broker does not answer"
        world.commit("two", t=3)
        found = world.observe()
        assert offsets(found) == {"one": {"t": 1}, "two": {"t": 3}}
        assert found.unreadable == {"one": "a broker does not answer"}
        assert found.problems["listing"] == "a broker does not answer"

    def test_a_group_that_the_listing_lacks_although_it_exists_is_kept(self, world: World) -> None:
        world.commit("one", t=1)
        world.observe()
        world.groups.hides = {"one"}
        found = world.observe()
        assert (offsets(found), found.unreadable) == ({"one": {"t": 1}}, {"one": NOT_LISTED})

    def test_of_an_unreadable_group_offsets_in_topics_that_are_gone_go(self, world: World) -> None:
        world.commit("one", t=1, u=2)
        world.commit("two", t=1)
        world.observe()
        world.groups.lost = {"one", "two"}
        world.broker.delete("t")
        world.broker.create("t", partitions=1)
        found = world.observe()
        assert offsets(found) == {"one": {"u": 2}}
        assert set(found.unreadable) == {"one", "two"}

    def test_a_right_that_is_missing_on_a_group_in_the_settings_is_noticed(self, world: World) -> None:
        """No listing shows the group, and no earlier snapshot has it."""
        world.named = ("one", "absent", "ours")
        world.commit("one", t=1)
        world.groups.hides, world.groups.refuses["one"] = {"one"}, self.REFUSED
        found = world.observe()
        assert found.unreadable == {"one": self.REFUSED}
        world.groups.refuses.clear()
        assert world.observe().unreadable == {}, "it is listed soon"

    def test_a_cluster_that_does_not_answer_is_no_snapshot(self, world: World) -> None:
        world.groups.away = True
        with pytest.raises(BrokerUnavailable):
            world.observe()

    def test_of_another_cluster_nothing_is_kept(self, world: World) -> None:
        world.commit("one", t=1)
        world.observe()
        world.admin.cluster = "another"
        world.groups.lost = {"one"}
        found = world.observe()
        assert (found.cluster_id, found.groups) == ("another", {})

    @pytest.mark.parametrize("after", range(3), ids=["the topics", "the listing", "a description"])
    def test_a_process_that_ends_makes_no_snapshot(self, world: World, after: int) -> None:
        """It would take every group that it did not ask about any more for one that cannot be read."""
        world.commit("one", t=1)

        def per_second() -> int:
            if world.groups.asked.total() == after:
                world.stop.set()
            return 10**9

        world.observer.budget = CallBudget(per_second, world.clock, world.stop)
        with pytest.raises(BrokerUnavailable, match="this process ends"):
            world.observe()
        assert world.groups.asked.total() == after

    def test_each_request_waits_for_its_turn(self, world: World) -> None:
        """Also those about groups that are not listed, and about other kinds."""
        world.commit("one", t=1)
        world.commit("two", t=1)
        world.observe()
        world.groups.found.pop("two")
        world.named = ("three",)
        turns = 0

        def per_second() -> int:
            nonlocal turns
            turns += 1
            return 10**9

        world.observer.budget = CallBudget(per_second, world.clock, world.stop)
        world.clock.at += OTHERS_EVERY
        world.groups.asked.clear()
        world.observe()
        assert world.groups.asked == {"listing": 1, "facts": 3, "committed": 1, "others": 1}
        assert turns == 6


class TestOtherKinds:
    def test_are_named_with_their_kind(self, world: World) -> None:
        world.groups.found = {"s": FakeGroup("share"), "ours": FakeGroup("streams"), "c": FakeGroup("connect")}
        found = world.observe()
        assert found.unsupported == {"c": "connect", "s": "share"}
        assert found.groups == {}

    def test_are_asked_for_once_in_ten_minutes(self, world: World) -> None:
        world.observe()
        world.groups.found["s"] = FakeGroup("share")
        began = world.clock.at
        while world.clock.at < began + OTHERS_EVERY - MINUTE:
            assert world.observe().unsupported == {}
        assert world.observe().unsupported == {"s": "share"}
        assert world.groups.asked["others"] == 2

    def test_a_group_that_has_another_kind_now(self, world: World) -> None:
        world.groups.found["g"] = FakeGroup("share")
        world.observe()
        world.groups.found["g"] = FakeGroup(offsets={T: Committed(1, "")})
        found = world.observe()
        assert (found.unsupported, offsets(found)) == ({}, {"g": {"t": 1}})

    def test_that_are_not_known_stay_as_they_were(self, world: World) -> None:
        world.groups.found["s"] = FakeGroup("share")
        world.observe()
        world.observer = world.process()
        world.groups.no_others = "no answer"
        found = world.observe()
        assert (found.unsupported, found.problems) == ({"s": "share"}, {"unsupported": "no answer"})
        world.groups.no_others = ""
        assert world.observe().problems == {}


GROUPS = ("one", "two")
steps = st.tuples(
    st.sampled_from(GROUPS),
    st.sampled_from(["commit t", "commit u", "delete", "refuse", "hide", "lose", "heal", "incomplete", "restart"]),
)


@given(st.lists(st.lists(steps, max_size=3), max_size=12))
def test_each_group_is_as_it_was_when_it_was_last_read(turns: list[list[tuple[str, str]]]) -> None:
    world, count, last = World(), 0, dict[str, Mapping[str, int]]()
    groups = world.groups
    for turn in turns:
        groups.incomplete = ""
        for one, step in turn:
            count += 1
            match step:
                case "commit t" | "commit u":
                    world.commit(one, **{step[-1]: count})
                case "delete":
                    groups.found.pop(one, None)
                case "refuse":
                    groups.refuses[one] = "refused"
                case "hide":
                    groups.refuses[one] = "refused"
                    groups.hides.add(one)
                case "lose":
                    groups.lost.add(one)
                case "heal":
                    groups.refuses.pop(one, None)
                    groups.hides.discard(one)
                    groups.lost.discard(one)
                case "incomplete":
                    groups.incomplete = "a broker does not answer"
                case "restart":
                    world.observer = world.process()
        found = world.observe()
        for one in GROUPS:
            is_refused = one in groups.refuses or one in groups.lost
            is_listed = one in groups.found and one not in groups.hides
            known = not is_refused if is_listed else not (is_refused or groups.incomplete)
            if known:
                here = groups.found.get(one, FakeGroup()).offsets
                last[one] = {p.topic: committed.next_offset for p, committed in here.items()}
            assert offsets(found).get(one, {}) == last.get(one, {})
            assert (one in found.unreadable) == (not known and (is_listed or bool(last.get(one))))
