"""What the writer publishes where it may not see everything."""

from __future__ import annotations

import pytest

from infra.contracts.cluster import Committed, TopicPartition
from tests.egress.catalog.published_region import HOUR, Region
from tests.ingress.acls import READ


class TestRights:
    """A missing right leaves out what it is for, in the object's `problems` and once in the log."""

    def test_without_read_on_the_group(self, region: Region, caplog: pytest.LogCaptureFixture) -> None:
        one = region.process("one")
        region.broker.committed("group")[TopicPartition("t", 0)] = Committed(0, "")
        region.no_positions = "allow READ on the group"
        region.turn(one, times=20)
        [found] = region.watermarks()
        assert found.problems == {"position": "allow READ on the group"}
        assert (found.topics["t"].high, found.topics["t"].position) == ((0,), (None,))
        operations = [vars(record)["operation"] for record in caplog.records if record.message == "not_observed"]
        assert operations.count("position") == 1
        region.no_positions = ""
        region.turn(one, times=7)
        assert region.watermarks()[-1].topics["t"].position == (0,)
        assert region.watermarks()[-1].problems == {}

    def test_without_a_right_on_some_partitions(self, region: Region) -> None:
        region.grow(2)
        region.ends.refuses[TopicPartition("t", 1)] = "allow DESCRIBE on the topic"
        region.turn(region.process("one"))
        [found] = region.watermarks()
        assert found.problems == {"offsets": "of 1 partitions, first t/1: allow DESCRIBE on the topic"}
        assert found.topics["t"].low == found.topics["t"].high == found.topics["t"].stable == (0, None)

    def test_an_empty_list_of_acls_is_no_answer(self, region: Region) -> None:
        """The client gives it to a principal that may not list them, and the target would revoke them all."""
        one = region.process("one")
        region.turn(one, times=2)
        found = region.catalogs()[-1]
        assert found.acls is None
        assert "nothing is revoked at the target" in found.problems["acls"]

    def test_that_the_last_acl_was_revoked_is_believed_where_all_are_seen(self, region: Region) -> None:
        one = region.process("one")
        one.source.bindings.add(READ)
        region.turn(one, times=2)
        assert region.catalogs()[-1].acls == frozenset({READ})
        one.source.bindings.clear()
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None, "the right to list them may have gone"
        one.source.sees_all = True
        region.clock.advance(HOUR)
        region.turn(one, times=7)
        found = region.catalogs()[-1]
        assert (found.acls, found.problems) == (frozenset(), {})
        one.source.no_acls = "the authorizer is gone"
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None

    def test_whether_all_are_seen_is_asked_once_in_an_hour(self, region: Region) -> None:
        """The Kafka client may end the process on this question."""
        one = region.process("one")
        region.turn(one, times=2)
        one.source.sees_all = True
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None, "as it was answered"
        region.clock.advance(HOUR)
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls == frozenset()
        one.source.sees_all = False
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls == frozenset(), "there is nothing left to revoke"
        region.clock.advance(HOUR)
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None

    def test_that_all_were_seen_before_there_was_one_says_nothing_of_its_end(self, region: Region) -> None:
        one = region.process("one")
        one.source.sees_all = True
        region.turn(one, times=2)
        assert region.catalogs()[-1].acls == frozenset()
        one.source.bindings.add(READ)
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls == frozenset({READ})
        one.source.bindings.clear()
        one.source.sees_all = False
        region.turn(one, times=7)
        assert region.catalogs()[-1].acls is None, "the right to list them may have gone"

    def test_without_rights_on_configs_and_acls(self, region: Region) -> None:
        one = region.process("one")
        one.source.no_acls, one.source.refuses_configs["t"] = "no authorizer", "allow DESCRIBE_CONFIGS"
        region.turn(one)
        [found] = region.catalogs()
        assert found.problems == {"acls": "no authorizer", "configs": "of 1 topics, first t: allow DESCRIBE_CONFIGS"}
        assert (found.acls, found.topics["t"].configs) == (None, None)
        assert one.publisher.health.snapshot().problems == {}


def test_a_topic_that_may_not_be_described_any_more_was_not_removed(region: Region) -> None:
    one = region.process("one")
    region.broker.create("u", partitions=1)
    region.broker.create("v", partitions=1)
    region.turn(one)
    region.admin.hides["t"] = "no DESCRIBE"  # so no listing shows it
    region.broker.delete("u")
    region.turn(one, times=20)
    found = region.catalogs()[-1]
    assert (set(found.topics), set(found.removed_names)) == ({"v"}, {"u"})
    del region.admin.hides["t"]
    region.turn(one, times=20)
    found = region.catalogs()[-1]
    assert (set(found.topics), set(found.removed_names)) == ({"t", "v"}, {"u"})
