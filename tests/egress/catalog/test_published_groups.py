"""Snapshots of consumer groups, as the writer publishes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from egress.catalog.publisher import CATALOG
from tests.egress.catalog.published_region import OF_GROUPS, Region


class TestGroups:
    def test_are_stored_when_a_group_commits(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        one = region.process("one")
        region.turn(one, times=40)
        assert [found.groups["g"].topics["t"].next_offsets for found in region.snapshots()] == [(5,)]
        region.commit("g", 6)
        region.turn(one, times=13)
        assert [found.groups["g"].topics["t"].next_offsets for found in region.snapshots()] == [(5,), (6,)]

    def test_a_snapshot_without_groups_is_one(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.turn(region.process("one"), times=2)
        assert [found.groups for found in region.snapshots()] == [{}]

    def test_nothing_is_asked_without_an_interval_and_one_that_is_set_later_holds(self, region: Region) -> None:
        one = region.process("one")
        region.turn(one, times=20)
        assert (region.snapshots(), region.groups.asked, region.heartbeat().groups) == ([], {}, 0)
        region.group_interval = OF_GROUPS
        region.turn(one)
        assert len(region.snapshots()) == 1
        asked = region.groups.asked["listing"]
        region.turn(one, times=20)
        assert region.groups.asked["listing"] == asked + 1
        region.group_interval = timedelta(seconds=5)
        region.turn(one, times=10)
        assert region.groups.asked["listing"] == asked + 11, "from the next turn on"
        region.group_interval = timedelta()
        region.turn(one, times=20)
        assert region.groups.asked["listing"] == asked + 11

    def test_heartbeats_say_until_when_they_were_observed_to_be_those(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        one = region.process("one")
        began = region.clock.at
        region.turn(one, times=2)
        assert (region.heartbeat().groups, region.heartbeat().groups_at) == (1, began)
        region.turn(one, times=26)
        assert (region.heartbeat().groups, region.heartbeat().groups_at) == (1, began + 2 * OF_GROUPS)
        region.groups.away = True
        region.turn(one, times=26)
        assert region.heartbeat().groups_at == began + 2 * OF_GROUPS

    def test_a_cluster_that_refuses_groups_holds_up_nothing_else_and_is_reported(self, region: Region) -> None:
        region.group_interval = OF_GROUPS
        region.groups.away = True
        one = region.process("one")
        region.turn(one, times=20)
        assert (region.snapshots(), len(region.catalogs()), len(region.watermarks())) == ([], 1, 1)
        assert one.is_writer
        assert "to publish the offsets of consumer groups" in one.publisher.health.snapshot().problems[CATALOG]
        region.groups.away = False
        region.turn(one)
        assert len(region.snapshots()) == 1
        assert one.publisher.health.snapshot().problems == {}

    def test_a_group_that_may_not_be_described_is_logged_once(
        self, region: Region, caplog: pytest.LogCaptureFixture
    ) -> None:
        region.group_interval = OF_GROUPS
        region.commit("g", 5)
        region.groups.refuses["g"] = "allow DESCRIBE on the group"
        one = region.process("one")
        region.turn(one, times=40)
        assert [found.unreadable for found in region.snapshots()] == [{"g": "allow DESCRIBE on the group"}]
        operations = [vars(record)["operation"] for record in caplog.records if record.message == "not_observed"]
        assert operations.count("groups") == 1
        assert one.publisher.health.snapshot().problems == {}
