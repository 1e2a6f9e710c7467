"""`replicator adopt`: says which life of a topic the segments of an archive are of."""

from __future__ import annotations

from typing import Annotated

import typer

from egress.places import adopt as adopt_life
from replicator.commands.reach import Reach
from replicator.commands.terminal import AsJson, ConfigFile, load_config, print_json, print_text
from replicator.lifecycle import SystemClock


def adopt(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of this region.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Say that the segments under a topic's name are of the topic that is there now: egress goes on behind them.

    If that place was claimed for an earlier life of the topic, it gets a place of its own. Saying it again changes
    nothing, but where brokers have no topic ids: there it begins the next life.
    """
    settings = load_config(config)
    with Reach(settings) as reach:
        life = adopt_life(reach.control, reach.admin, settings.region, topic, SystemClock())
    place = life.source(settings.region, 0).place
    if as_json:
        print_json({"topic": topic, "place": place, "topic_id": life.name, "cluster_id": life.cluster_id})
    else:
        print_text(f"{settings.region}/{place} is of topic id {life.name} in cluster {life.cluster_id}")
