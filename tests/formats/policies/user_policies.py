"""Replication policies and filters as a user writes them: some work, some do not."""

from __future__ import annotations

import sys


class Suffixed:
    """orders of a ──> orders-from-a"""

    def __init__(self, source_alias: str, separator: str) -> None:
        self.source_alias, self.separator = source_alias, separator

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if topic.startswith("forbidden"):
            raise KeyError("no such customer")
        return f"{topic}-from-{source_alias}"

    def topic_source(self, topic: str) -> str | None:
        _, sign, alias = topic.rpartition("-from-")
        return alias if sign else None

    def upstream_topic(self, topic: str) -> str | None:
        head, sign, _ = topic.rpartition("-from-")
        return head if sign else None


class OwnHeartbeats(Suffixed):
    def heartbeats_topic(self) -> str:
        return "pulse"


class FailsForHeartbeats(Suffixed):
    def heartbeats_topic(self) -> str:
        return "forbidden"


class OddHeartbeats(Suffixed):
    def heartbeats_topic(self) -> str:
        return "heart beats"


class LacksMethods:
    def __init__(self, source_alias: str, separator: str) -> None: ...

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return topic


class TakesNothing(Suffixed):
    def __init__(self) -> None: ...


class Forgets(Suffixed):
    def upstream_topic(self, topic: str) -> str | None:
        return topic


class ReturnsNothing(Suffixed):
    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return None  # type: ignore[return-value]


class Raises(Suffixed):
    def topic_source(self, topic: str) -> str | None:
        raise RuntimeError("not today")


NO_CLASS = 5


class NoTemporary:
    def should_replicate_topic(self, topic: str) -> bool:
        return not topic.startswith("tmp")

    def should_replicate_group(self, group: str) -> bool:
        return not group.startswith("tmp")

    def should_replicate_config_property(self, prop: str) -> bool:
        if prop == "forbidden":
            raise KeyError("no such customer")
        return not prop.startswith("tmp")


class FailsForSome(NoTemporary):
    def should_replicate_topic(self, topic: str) -> bool:
        if topic == "forbidden":
            raise KeyError("no such customer")
        return super().should_replicate_topic(topic)


class SaysMaybe:
    def should_replicate_topic(self, topic: str) -> bool:
        return None  # type: ignore[return-value]


class NoFilter: ...


class Exits:
    def should_replicate_topic(self, topic: str) -> bool:
        sys.exit(3)


class ExitsAtOnce(Exits):
    def __init__(self) -> None:
        sys.exit(3)


class FailsForNow:
    """Until a test lets it answer."""

    answers = False

    def should_replicate_config_property(self, prop: str) -> bool:
        if not self.answers:
            raise KeyError("no such customer")
        return prop != "flush.ms"
