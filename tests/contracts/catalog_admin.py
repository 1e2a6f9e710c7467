"""What every CatalogAdmin and every LogEndReader does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta

import pytest

from formats.errors import TargetError
from formats.policies.acls import AclBinding
from formats.policies.topic_configs import ConfigChange, ConfigSource, ConfigValue
from infra.contracts.catalog import CatalogAdmin, LogEndReader
from infra.contracts.cluster import LogEnds, TopicPartition
from infra.local.waiting import wait_until


class CatalogAdminContract:
    """Every CatalogAdmin passes these. Subclasses give the fixtures `admin` and `topic`: the name of one that has 3
    partitions and the configs CONFIGS."""

    CONFIGS: Mapping[str, str] = {"retention.ms": "777000", "cleanup.policy": "compact"}

    def grant(self, topic: str) -> AclBinding:
        """Let somebody read the topic, by its name."""
        raise NotImplementedError

    def test_topics_with_ids_partitions_and_replicas(self, admin: CatalogAdmin, topic: str) -> None:
        found = admin.shapes([topic, "no-such-topic"])
        assert list(found) == [topic]
        shape = found[topic]
        assert (shape.name, shape.partitions, shape.replication_factor) == (topic, 3, 1)
        assert shape.topic_id
        assert "/" not in shape.topic_id
        assert admin.shapes([]) == {}

    def test_configs_with_their_source(self, admin: CatalogAdmin, topic: str) -> None:
        found = admin.config_values([topic, "no-such-topic"])
        assert list(found) == [topic]
        configs = found[topic]
        assert not isinstance(configs, Exception)
        assert configs["retention.ms"] == ConfigValue("777000", ConfigSource.TOPIC)
        assert configs["cleanup.policy"] == ConfigValue("compact", ConfigSource.TOPIC)
        assert configs["segment.bytes"].source is ConfigSource.DEFAULT

    def test_partitions_are_added_once(self, admin: CatalogAdmin, topic: str) -> None:
        for _ in range(2):
            admin.grow(topic, 5)
        assert admin.shapes([topic])[topic].partitions == 5
        admin.grow(topic, 4)
        assert admin.shapes([topic])[topic].partitions == 5
        with pytest.raises(TargetError, match="no-such-topic"):
            admin.grow("no-such-topic", 2)

    def test_configs_are_set_and_unset_and_a_refused_one_holds_up_no_other(
        self, admin: CatalogAdmin, topic: str
    ) -> None:
        change = ConfigChange({"retention.ms": "5000", "segment.bytes": "not a number"}, frozenset({"cleanup.policy"}))
        refused = admin.change_configs(topic, change)
        assert list(refused) == ["segment.bytes"]
        assert "not a number" in refused["segment.bytes"]
        wanted = {
            "retention.ms": ConfigValue("5000", ConfigSource.TOPIC),
            "cleanup.policy": ConfigValue("delete", ConfigSource.DEFAULT),
        }

        def shown() -> Mapping[str, ConfigValue]:
            configs = admin.config_values([topic])[topic]
            assert not isinstance(configs, Exception)
            return {name: configs[name] for name in wanted}

        # a broker shows what the controller has decided a little later
        assert wait_until(lambda: shown() == wanted, timedelta(seconds=20)), shown()
        assert admin.change_configs(topic, ConfigChange()) == {}

    def test_acls_of_topics(self, admin: CatalogAdmin, topic: str) -> None:
        granted = self.grant(topic)
        assert wait_until(lambda: granted in admin.acls(), timedelta(seconds=20)), admin.acls()

    def test_acls_are_created_and_exactly_these_deleted(self, admin: CatalogAdmin, topic: str) -> None:
        kept = self.grant(topic)
        ours = replace(kept, operation="DESCRIBE_CONFIGS"), replace(kept, permission="DENY", operation="WRITE")
        for _ in range(2):
            assert admin.create_acls(ours) == {}
            assert wait_until(lambda: {kept, *ours} <= admin.acls(), timedelta(seconds=20)), admin.acls()
        for _ in range(2):
            admin.delete_acls(ours)
            assert wait_until(lambda: not admin.acls().intersection(ours), timedelta(seconds=20)), admin.acls()
        assert kept in admin.acls()
        assert admin.create_acls([]) == {}
        admin.delete_acls([])

    def test_a_topic_is_deleted_once(self, admin: CatalogAdmin, topic: str) -> None:
        for _ in range(2):
            admin.delete_topic(topic)
            assert wait_until(lambda: not admin.shapes([topic]), timedelta(seconds=20))

    def test_where_acls_may_be_listed_an_empty_list_means_none(self, admin: CatalogAdmin) -> None:
        assert admin.sees_all_acls()


class LogEndContract:
    """Every LogEndReader passes these. Subclasses give the fixtures `reader` and `partition`, an empty one."""

    def append(self, partition: TopicPartition, count: int) -> None:
        raise NotImplementedError

    def trim(self, partition: TopicPartition, low: int) -> None:
        raise NotImplementedError

    def transaction(self, partition: TopicPartition) -> AbstractContextManager[None]:
        """Open while the body runs, with one record in it."""
        raise NotImplementedError

    def test_ends_of_logs(self, reader: LogEndReader, partition: TopicPartition) -> None:
        absent = TopicPartition("no-such-topic", 0)
        assert reader.log_ends([partition, absent]) == {partition: LogEnds(low=0, stable=0, high=0)}
        self.append(partition, 5)
        self.trim(partition, 2)
        with self.transaction(partition):
            assert reader.log_ends([partition]) == {partition: LogEnds(low=2, stable=5, high=6)}
            known = {partition: 1}
            assert reader.log_ends([partition], known) == {partition: LogEnds(low=1, stable=5, high=6)}
        assert reader.log_ends([]) == {}
