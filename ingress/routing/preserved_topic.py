"""Which configs of a destination contradict that its records keep the source's offsets, and which put that at risk.

    cleanup.policy                   compacted here, and not at the source: refused. What the source keeps goes here,
                                     records without a key are not accepted, and what a writer left behind can no
                                     longer be compared with the source
    retention.ms, retention.bytes    less than at the source: warned of. Groups that stand before are moved to the
                                     log's start, and fillers count as bytes
    unclean.leader.election.enable   warned of: it may lose the log's tail, after which nothing is delivered any more
    message.timestamp.type           LogAppendTime: warned of. Offsets stay, the records' timestamps do not

Others only change when a broker stores, replicates or cleans: `delete.retention.ms` says when fillers in a compacted
log go, and offsets stay as they are then. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from formats.policies.topic_configs import RETENTION, ConfigValue

CLEANUP, UNCLEAN, STAMPS = "cleanup.policy", "unclean.leader.election.enable", "message.timestamp.type"


def contradiction(configs: Mapping[str, str], source: Mapping[str, ConfigValue] | None) -> str:
    """Why nothing is delivered to a topic with these configs, with the remedy; empty when it is. `source`: configs of
    the source's topic; None: not known, so nothing is refused."""
    if source is None or not _is_compacted(configs.get(CLEANUP)):
        return ""
    policy = source.get(CLEANUP)
    if _is_compacted(None if policy is None else policy.value):
        return ""
    return (
        f"it has {CLEANUP} = {configs[CLEANUP]}, and its source is not compacted: records that the source keeps would "
        f"go, and with offsets = 'preserve' both logs are to be the same. Set {CLEANUP} = delete here, or offsets = "
        "'map' for the source"
    )


def risks(configs: Mapping[str, str], source: Mapping[str, ConfigValue] | None) -> Iterator[str]:
    """What may take records later, or stop a partition. `source`: None where it is not known."""
    for name in RETENTION:
        here, there = _limit(configs.get(name)), _limit(None if source is None else _value(source, name))
        is_shorter = here is not None and source is not None and (there is None or here < there)
        if is_shorter and _is_trimmed(configs):
            beside = f"{there} at the source" if there is not None else "no such limit at the source"
            yield f"{name} = {here}, and {beside}: records go earlier here"
    if configs.get(UNCLEAN) == "true":
        yield f"{UNCLEAN} = true: a leader that lacks records would stop its partition for good"
    if configs.get(STAMPS) == "LogAppendTime":
        yield f"{STAMPS} = LogAppendTime: records get the time of their arrival"


def _value(configs: Mapping[str, ConfigValue], name: str) -> str | None:
    return configs[name].value if name in configs else None


def _is_compacted(policy: str | None) -> bool:
    return "compact" in [each.strip() for each in (policy or "delete").split(",")]


def _is_trimmed(configs: Mapping[str, str]) -> bool:
    """Whether the retention is in force."""
    return "delete" in [each.strip() for each in configs.get(CLEANUP, "delete").split(",")]


def _limit(value: str | None) -> int | None:
    """None: no limit."""
    return None if value is None or int(value) < 0 else int(value)
