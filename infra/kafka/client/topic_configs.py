"""Topic configs that decide what happens to a record: cleanup policies, and limits of timestamps.

The limits of timestamps have different names by Kafka version. Kafka 3.6 introduced one config for the past and one
for the future. Older brokers have one config for both; from 3.6 to 3.9 it still applies where the new ones are not set;
Kafka 4 has removed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
NO_LIMIT = 2**63 - 1
CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """Configs of a topic, as the broker reports them or as it is to be created; what is absent has Kafka's default."""

    values: Mapping[str, str]

    @property
    def cleanup_policies(self) -> frozenset[str]:
        policies = (policy.strip() for policy in self.values.get(CLEANUP_POLICY, "delete").split(","))
        return frozenset(policy for policy in policies if policy)

    @property
    def is_compacted(self) -> bool:
        """The broker does not keep every record, maybe beside deleting by age."""
        return "compact" in self.cleanup_policies

    @property
    def is_trimmed(self) -> bool:
        """The broker deletes records by their age, or by the size of their log, if its limits say so."""
        return "delete" in self.cleanup_policies


def limits_ms(configs: Mapping[str, str]) -> tuple[int, int]:
    """How far a timestamp may lie before and after the broker's clock; `configs` as the broker describes them."""
    both = int(configs.get(DIFFERENCE, NO_LIMIT))
    before, after = (int(configs.get(name, NO_LIMIT)) for name in (BEFORE, AFTER))
    return (both if before == NO_LIMIT else before, both if after == NO_LIMIT else after)


def configs_before_3_6(configs: Mapping[str, str]) -> Mapping[str, str] | None:
    """The same configs for a Kafka before 3.6; None if nothing has to change, or if the limits cannot be expressed."""
    limits = {configs[name] for name in (BEFORE, AFTER) if name in configs}
    if len(limits) != 1:
        return None
    others = {name: value for name, value in configs.items() if name not in (BEFORE, AFTER)}
    return {**others, DIFFERENCE: limits.pop()}
