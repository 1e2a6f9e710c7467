"""The ledger has every topic that the replicator creates, also after a crash at any step, and no other topic."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.errors import BrokerUnavailable, TargetError
from formats.policies.topic_configs import CREATED_WITH
from ingress.catalog.desired import KeptTopic, SourceTopic
from tests.ingress.world import REGION, World, source_topic

KEPT = {
    "copy": KeptTopic(
        sources=[SourceTopic(region=REGION, name="t")], archived=[], first_segment_delay=timedelta(minutes=1)
    )
}


def create(world: World, **configs: str) -> None:
    world.creator().create("copy", 2, configs, source="a/t", lineage=("source",))


def test_a_topic_that_we_created_is_ours() -> None:
    world = World()
    create(world, **{"segment.bytes": "1000"})
    assert world.admin.settings["copy"] == {"segment.bytes": "1000", **CREATED_WITH}
    owned = world.ledger.read().topic("copy", "id-copy")
    assert owned is not None
    assert (owned.source, owned.lineage, owned.is_copied) == ("a/t", ("source",), False)


def test_a_topic_that_was_there_is_not() -> None:
    world = World()
    world.broker.create("copy", partitions=2)
    create(world)
    assert world.ledger.read().topics == {}


def test_a_config_that_the_cluster_refuses_does_not_prevent_the_creation() -> None:
    world = World()
    world.admin.refuses_config = "remote.storage.enable"
    create(world, **{"remote.storage.enable": "true", "segment.bytes": "1000"})
    assert world.admin.settings["copy"] == CREATED_WITH
    assert world.ledger.read().topic("copy", "id-copy") is not None


def test_too_few_brokers_name_the_setting() -> None:
    world = World()
    world.admin.refuses["copy"] = "The target replication factor of 2 cannot be reached"
    with pytest.raises(TargetError, match=r"ingress\.replication_factor = 2"):
        create(world)


def test_without_a_ledger_nothing_is_created() -> None:
    world = World()
    world.ledger.away = True
    with pytest.raises(BrokerUnavailable):
        create(world)
    assert world.admin.asked["create_topic"] == 0


@pytest.mark.parametrize("created", [True, False])
def test_a_process_that_died_before_the_entry_is_completed_by_the_next(*, created: bool) -> None:
    world = World()
    world.publish_catalog(source_topic())
    create(world)
    world.ledger.records.pop()  # died before the topic's id was written down
    if not created:  # and somebody else created the topic
        world.broker.recreate("copy")
        world.admin.settings["copy"] = {}
    catalogs = world.catalogs().refresh([REGION])
    world.applier().plan(KEPT, catalogs, {})
    assert bool(world.ledger.read().topics) is created


def test_a_topic_that_somebody_restores_later_is_not_adopted() -> None:
    """It has the same limits of timestamps, and the intent of its predecessor still stands."""
    world = World()
    world.publish_catalog(source_topic())
    create(world)
    world.broker.recreate("copy")
    world.applier().plan(KEPT, world.catalogs().refresh([REGION]), {})
    assert [topic_id for _, topic_id in world.ledger.read().topics] == ["id-copy"]


def test_an_intent_of_yesterday_adopts_nothing() -> None:
    world = World()
    world.publish_catalog(source_topic())
    create(world)
    world.ledger.records.pop()
    world.clock.advance(86_400)
    world.applier().plan(KEPT, world.catalogs().refresh([REGION]), {})
    assert world.ledger.read().topics == {}


def test_a_topic_without_an_id_is_nobodys() -> None:
    world = World()
    world.admin.ids["copy"] = ""
    create(world)
    assert world.ledger.read().topics == {}


def test_an_intent_is_written_once_however_often_a_creation_is_refused() -> None:
    world = World()
    world.admin.refuses["copy"] = "no CREATE"
    creator = world.creator()
    for _ in range(5):
        with pytest.raises(TargetError):
            creator.create("copy", 2, {}, source="a/t", lineage=())
    assert len(world.ledger.records) == 1


def test_a_lineage_that_was_not_known_is_corrected() -> None:
    world = World()
    world.creator().create("copy", 2, {}, source="a/t", lineage=())
    world.publish_catalog(source_topic(lineage=["z"]))
    world.applier().plan(KEPT, world.catalogs().refresh([REGION]), {})
    owned = world.ledger.read().topic("copy", "id-copy")
    assert owned is not None
    assert owned.lineage == ("source", "z")
