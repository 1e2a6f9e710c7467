"""Positions for other replicators: which are chosen, what is written, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import CheckpointConflict, TargetError
from formats.incarnation import Incarnation
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey
from formats.messages.foreign_positions import (
    ForeignPartition,
    Record,
    ancestor_positions,
    ancestor_record,
    connect_positions,
    connect_record,
)
from formats.segment import SourcePartition
from replicator.selection import SourceName
from replicator.services.export_plan import ancestor_exports, chosen, connect_exports, due_records

AT = datetime(2026, 1, 1, tzinfo=UTC)
CONNECTOR = "MirrorSourceConnector"


def key(topic: str = "t", partition: int = 0, *, region: str = "a", to: str = "copy", id_: str = "") -> CheckpointKey:
    return CheckpointKey(SourcePartition(region, topic, partition, id_), to)


def at(next_offset: int, *, later: int = 0) -> Checkpoint:
    return Checkpoint(next_offset, "id", AT + timedelta(seconds=later))


def named(topic: str, partition: int | None = None, id_: str = "") -> SourceName:
    return SourceName(region="a", incarnation=Incarnation(topic, id_), partition=partition)


class TestChosen:
    KNOWN: Mapping[CheckpointKey, Checkpoint | CheckpointConflict] = {
        key(): at(5),
        key(partition=1): at(6),
        key("u"): at(7),
        key(region="c"): at(8),
    }

    @pytest.mark.parametrize(
        ("name", "wanted"), [(None, [5, 6, 7]), (named("t"), [5, 6]), (named("t", 1), [6]), (named("x"), [])]
    )
    def test_of_a_region_a_topic_or_a_partition(self, name: SourceName | None, wanted: list[int]) -> None:
        assert [one.next_offset for one in chosen(self.KNOWN, "a", name, lambda _: True).values()] == wanted

    def test_of_several_incarnations_the_one_that_is_delivered_now(self) -> None:
        known = {key(): at(100), key(id_="new"): at(3, later=9)}
        assert chosen(known, "a", named("t"), lambda _: True) == {key(id_="new"): at(3, later=9)}
        assert chosen(known, "a", named("t", id_="new"), lambda _: True) == {key(id_="new"): at(3, later=9)}

    def test_several_destinations_need_a_choice(self) -> None:
        known = {key(): at(5), key(to="other"): at(9)}
        with pytest.raises(TargetError, match="--destination"):
            chosen(known, "a", None, lambda _: True)
        assert chosen(known, "a", None, lambda one: one.destination_topic == "other") == {key(to="other"): at(9)}

    def test_a_conflict_is_no_position(self) -> None:
        with pytest.raises(CheckpointConflict, match="both cannot be true"):
            chosen({key(): CheckpointConflict("both cannot be true")}, "a", None, lambda _: True)


class TestConnect:
    def test_the_next_record_is_the_one_that_is_wanted_here(self) -> None:
        exports = connect_exports({key(): at(301), key(partition=1): at(0)}, (), alias="A", connector=None)
        assert due_records(exports) == [connect_record(ForeignPartition("A", "t", 0), 301, CONNECTOR)]

    def test_the_key_that_is_there_is_written_again(self) -> None:
        there = b'["mine", {"topic": "t", "cluster": "A", "partition": 0}]'
        exports = connect_exports({key(): at(301)}, [(there, b'{"offset":9}')], alias="A", connector=None)
        assert [one.before for one in exports] == [10]
        assert due_records(exports) == [(there, b'{"offset":300}')]

    def test_a_position_at_the_first_record_removes_the_other(self) -> None:
        there = connect_record(ForeignPartition("A", "t", 0), 10, CONNECTOR)
        assert due_records(connect_exports({key(): at(0)}, [there], alias="A", connector=None)) == [(there[0], None)]

    def test_several_connectors_need_a_choice(self) -> None:
        where = ForeignPartition("A", "t", 0)
        there = [connect_record(where, 10, "one"), connect_record(where, 12, "two")]
        with pytest.raises(TargetError, match=r"one, two.*--connector"):
            connect_exports({key(): at(301)}, there, alias="A", connector=None)
        exports = connect_exports({key(): at(12)}, there, alias="A", connector="one")
        assert [(one.before, one.record) for one in exports] == [(10, connect_record(where, 12, "one"))]
        assert due_records(connect_exports({key(): at(12)}, there, alias="A", connector="two")) == []

    @given(
        st.dictionaries(st.integers(0, 9), st.integers(0, 50)), st.dictionaries(st.integers(0, 9), st.integers(1, 50))
    )
    def test_what_is_read_back_is_what_is_delivered(self, ours: dict[int, int], theirs: dict[int, int]) -> None:
        """And a second time there is nothing to write; partitions without a position here keep theirs."""
        positions = {key(partition=p): at(offset) for p, offset in ours.items()}
        present: list[Record] = [connect_record(ForeignPartition("A", "t", p), o, CONNECTOR) for p, o in theirs.items()]
        present += due_records(connect_exports(positions, present, alias="A", connector=None))
        wanted = {**theirs, **ours}
        assert connect_positions(present) == {ForeignPartition("A", "t", p): o for p, o in wanted.items() if o}
        assert due_records(connect_exports(positions, present, alias="A", connector=None)) == []


class TestAncestor:
    WHERE = ForeignPartition("a", "t", 0)

    def test_the_next_record_is_the_one_that_is_wanted_here(self) -> None:
        present = [ancestor_record(self.WHERE, 10, AT)]
        exports = ancestor_exports(
            {key(): at(301), key(partition=1): at(0)}, present, lambda one: 301 * (not one.partition), AT
        )
        assert [(one.before, one.next_offset) for one in exports] == [(10, 301)]
        assert ancestor_positions([*present, *due_records(exports)]) == {self.WHERE: 301}

    def test_it_never_goes_back(self) -> None:
        """Even when a later record in its topic is lower."""
        present = [ancestor_record(self.WHERE, 400, AT), ancestor_record(self.WHERE, 300, AT)]
        with pytest.raises(TargetError, match=r"position 400, ours is 301.*never goes back"):
            ancestor_exports({key(): at(301)}, present, lambda _: 301, AT)

    def test_what_is_archived_here_is_delivered_first(self) -> None:
        with pytest.raises(TargetError, match="delivered up to 301, and archived up to 302"):
            ancestor_exports({key(): at(301)}, (), lambda _: 302, AT)

    def test_a_position_behind_the_archive_is_kept(self) -> None:
        [one] = ancestor_exports({key(): at(301)}, (), lambda _: 299, AT)
        assert one.record == ancestor_record(self.WHERE, 301, AT)
