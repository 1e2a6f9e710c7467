"""Topics of heartbeats, as MirrorMaker 2 has them. Pure.

at the target b of a      heartbeats      key (a, b)      the flow a -> b lives
                          a.heartbeats    key (b, a)      a heartbeat of a has arrived, with a's own time
at the source a           heartbeats      key (a, a)      a lives, as its own clients see it
"""

from __future__ import annotations

from collections.abc import Mapping

HEARTBEAT_CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact"}
"""Of a topic of heartbeats, which has one partition."""


def why_not_heartbeats(topic: str, partitions: int, configs: Mapping[str, str]) -> str:
    """Why an existing topic cannot be one of heartbeats, so that nothing is written to a topic of a user; empty when it
    may be one."""
    policy = configs.get("cleanup.policy", "")
    if partitions == 1 and policy == HEARTBEAT_CONFIGS["cleanup.policy"]:
        return ""
    return (
        f"topic {topic} has {partitions} partitions and cleanup.policy = {policy!r}. Topics of heartbeats have one "
        "compacted partition: this one may be a user's, so nothing is written to it"
    )
