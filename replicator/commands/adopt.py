"""`replicator adopt`: says which life of a topic the segments of an archive are of."""

from __future__ import annotations

from typing import Annotated

import typer

from replicator.commands.reach import Reach
from replicator.commands.terminal import AsJson, ConfigFile, load_config, print_json, print_text
from replicator.control import Place
from replicator.control_store import ControlStore
from replicator.durable import Step, durable
from replicator.errors import TargetError
from replicator.lifecycle import SystemClock
from replicator.protocols import Clock, ClusterAdmin


def adopt(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of this region.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Say that the segments under a topic's name are of the topic that is there now: egress goes on behind them.

    If that place was claimed for an earlier life of the topic, it gets a place of its own. Saying it again changes
    nothing.
    """
    settings = load_config(config)
    with Reach(settings) as reach:
        place, claimed = adopt_place(reach.control, reach.admin, settings.region, topic, SystemClock())
    if as_json:
        print_json(
            {
                "topic": topic,
                "place": place,
                "topic_id": claimed.topic_id,
                "cluster_id": claimed.cluster_id,
                "claimed_at": claimed.claimed_at.isoformat(),
            }
        )
    else:
        print_text(
            f"{settings.region}/{place} is of topic id {claimed.topic_id} in cluster {claimed.cluster_id}, claimed "
            f"{claimed.claimed_at.isoformat(timespec='seconds')}"
        )


def adopt_place(control: ControlStore, admin: ClusterAdmin, region: str, topic: str, clock: Clock) -> tuple[str, Place]:
    """The place of the topic as it is now, claimed. Raises TargetError when there is none, or when its brokers do not
    tell topic ids, and what store and cluster raise."""
    facts = admin.describe([topic]).get(topic)
    if facts is None:
        raise TargetError(f"adopt {topic}: there is no such topic in this cluster")
    if not facts.topic_id:
        raise TargetError(f"adopt {topic}: its brokers do not tell topic ids")
    lives = [place for place in control.places(region) if place.partition("@")[0] == topic]
    claim = Place(topic_id=facts.topic_id, cluster_id=admin.cluster_id(), number=len(lives), claimed_at=clock.now())
    with durable(Step.CLAIM_PLACE):
        stands = control.claim(region, topic, claim)
    if stands.topic_id == facts.topic_id:
        return topic, stands
    beside = f"{topic}@{facts.topic_id}"
    with durable(Step.CLAIM_PLACE):
        return beside, control.claim(region, beside, claim)
