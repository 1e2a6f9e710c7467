"""How the topics of this cluster follow those of the source: settings of `[ingress]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from formats.messages.ledger import DEFAULT_LEDGER
from formats.policies.acls import AclMode
from formats.policies.filters import config_property_filter
from formats.policies.topic_configs import DEFAULT_EXCLUDES, ConfigFilter, UseDefaults
from infra.settings.field import setting, topic_name


def _expression(text: object) -> str | None:
    try:
        ConfigFilter(tuple(text) if isinstance(text, tuple) else (str(text),))
    except ValueError as error:
        return str(error)
    return None


def _config_property_filter(name: object) -> str | None:
    try:
        config_property_filter(str(name))
    except ValueError as error:
        return str(error)
    return None


def _principals(value: object) -> str | None:
    untyped = [one for one in (value if isinstance(value, tuple) else (value,)) if ":" not in str(one)]
    return f"{untyped[0]!r} has no type: write 'User:{untyped[0]}'" if untyped else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Topics, partitions, configs and ACLs of the source, as its catalogue lists them."""

    create_topics: bool = field(
        default=True,
        metadata=setting(
            "whether missing destination topics are created; false = their records wait until somebody creates them"
        ),
    )
    add_partitions: bool = field(
        default=True,
        metadata=setting(
            "whether partitions are added to destination topics that we created, when the source has more"
        ),
    )
    removals: Literal["report", "mirror"] = field(
        default="report",
        metadata=setting(
            "what becomes of a destination that we created when its source topic is deleted: report = it stays, and "
            "plan, status and the log say so; mirror = it is deleted once everything of it is delivered"
        ),
    )
    configs: Literal["mirror", "authoritative", "off"] = field(
        default="mirror",
        metadata=setting(
            "configs of destinations that we created: mirror = those of the source's topics, set and unset, and what "
            "only an operator set here is reported and stays; authoritative = that is unset, too; off = they stay as "
            "they were created, with retention.ms = -1"
        ),
    )
    use_defaults_from: UseDefaults = field(
        default="target",
        metadata=setting(
            "what a destination gets for a config that is not set at the source's topic: target = this cluster's "
            "default; source = the source's default, set at the topic"
        ),
    )
    config_properties_exclude: tuple[str, ...] = field(
        default=DEFAULT_EXCLUDES,
        metadata=setting(
            "configs that do not cross: expressions that match a whole name", check=_expression, reloads=True
        ),
    )
    config_property_filter: str | None = field(
        default=None,
        metadata=setting(
            '"package.module:Class", or an entry point of replicator.filters, that excludes configs, too, by '
            "should_replicate_config_property(name)",
            check=_config_property_filter,
            reloads=True,
        ),
    )
    retention_guard: Literal["warn", "raise"] = field(
        default="warn",
        metadata=setting(
            "when a destination keeps records for less time than the source does, or than its first copy is "
            "old: warn = the log and plan say so; raise = it gets the source's retention, and that age in addition"
        ),
    )
    acls: AclMode = field(
        default="mirror",
        metadata=setting(
            "ACLs of destinations: mirror = those of the source's topics, as MirrorMaker 2 does: no WRITE, READ for "
            "ALL; strict-read = READ for those who may read the source, or DENY of it; dr-full = all, also WRITE, "
            "prefixed ones, those of groups, and those of all topics, for each destination; off = none"
        ),
    )
    protect: bool | None = field(
        default=None,
        metadata=setting(
            "whether principals that may write to a destination are denied that; default: where the destination's "
            "name differs from the source's"
        ),
    )
    own_principals: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            'principals of the replicator, such as "User:replicator", which `protect` never denies anything: all of '
            "them, if any is given; default: those that sasl.username of its clients names, and User:ANONYMOUS without "
            "authentication",
            check=_principals,
        ),
    )
    ledger_topic: str = field(
        default=DEFAULT_LEDGER,
        metadata=setting(
            "compacted topic that lists what we created here: only that is altered or removed", check=topic_name
        ),
    )

    @property
    def regions(self) -> Sequence[str]:
        """Source regions; none where nothing is delivered."""
        return ()

    @property
    def alters_cluster(self) -> bool:
        """Whether anything is created or altered here, which needs a ledger."""
        return (
            self.create_topics
            or self.add_partitions
            or self.configs != "off"
            or self.acls != "off"
            or self.removals != "report"
        )

    @property
    def config_filter(self) -> ConfigFilter:
        name = self.config_property_filter
        return ConfigFilter(self.config_properties_exclude, None if name is None else config_property_filter(name))
