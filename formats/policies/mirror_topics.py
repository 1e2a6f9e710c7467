"""Topics of group checkpoints and of offset syncs, as MirrorMaker 2 has them. Pure.

at the target b of a      a.checkpoints.internal          where a's consumer groups stand, in b's offsets
                          mm2-offset-syncs.a.internal     which record of a has which offset in b, now and then
"""

from __future__ import annotations

from collections.abc import Mapping

MIRROR_CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact"}
"""Of both topics, which have one partition."""


def why_not_mirrored(topic: str, partitions: int, configs: Mapping[str, str], *, adopt: bool) -> str:
    """Why nothing is written to an existing topic that the replicator did not create; empty when it may be used."""
    if not adopt:
        return (
            f"topic {topic} exists, and the replicator did not create it: MirrorMaker 2 or another program may write "
            "to it. End that program, and set groups.adopt = true; or set groups.emit_checkpoints = false"
        )
    policy = configs.get("cleanup.policy", "")
    if partitions == 1 and policy == MIRROR_CONFIGS["cleanup.policy"]:
        return ""
    return (
        f"topic {topic} has {partitions} partitions and cleanup.policy = {policy!r}. MirrorMaker 2's topics have one "
        "compacted partition: this one may be a user's, so nothing is written to it"
    )
