"""Reference of all settings, derived from the dataclass fields: path, type, default and reason."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compaction.retention_settings import HeldOffsets, RetentionRule, RetentionSettings
from compaction.settings import CompactionJob, CompactionSettings
from egress.settings import EgressSettings, EgressTopicSettings, StartPolicy
from egress.sync_settings import SyncSettings
from formats.group_selection import GroupPattern
from formats.topic_selection import TopicPattern
from infra.settings.encryption import EncryptionSettings
from infra.settings.field import FieldInfo, of, settings_of, written
from infra.settings.kafka import KafkaSettings
from infra.settings.schema_registry import SchemaRegistrySettings
from infra.settings.storage import S3Settings, SqsSettings
from infra.settings.units import format_duration, format_size
from ingress.groups.settings import GroupSettings
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.flows_form import FlowSettings
from replicator.config.settings import Config, LogSettings, MetricsSettings
from replicator.config.show import toml_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FLOW_HEADER = '[flows."A->B"]'

# Header, settings, and the names of those settings that have a header of their own.
_SECTIONS: tuple[tuple[str, type[DataclassInstance], frozenset[str]], ...] = (
    (
        "",
        Config,
        frozenset({"kafka", "s3", "egress", "sqs", "ingress", "sync", "compaction", "retention"})
        | frozenset({"schema_registry", "encryption", "groups", "metrics", "log", "format_options"}),
    ),
    ("[kafka]", KafkaSettings, frozenset({"base", "consumer", "producer", "admin"})),
    ("[s3]", S3Settings, frozenset()),
    ("[encryption]", EncryptionSettings, frozenset()),
    ("[egress]", EgressSettings, frozenset({"topics"})),
    ('[egress.topics."name"]', EgressTopicSettings, frozenset()),
    ("[sqs]", SqsSettings, frozenset()),
    ("[ingress]", IngressSettings, frozenset({"sources"})),
    ("[[ingress.sources]]", IngressSource, frozenset()),
    ("[sync]", SyncSettings, frozenset({"destination", "queue"})),
    ("[compaction]", CompactionSettings, frozenset({"jobs", "spark"})),
    ("[[compaction.jobs]]", CompactionJob, frozenset()),
    ("[retention]", RetentionSettings, frozenset({"topics"})),
    ('[retention.topics."name"]', RetentionRule, frozenset()),
    ("[schema_registry]", SchemaRegistrySettings, frozenset()),
    ("[groups]", GroupSettings, frozenset()),
    ("[metrics]", MetricsSettings, frozenset()),
    ("[log]", LogSettings, frozenset()),
    (FLOW_HEADER, FlowSettings, frozenset()),
)
# Settings of tables that lie in a setting of another section.
_TABLES_OF: Mapping[type[DataclassInstance], tuple[type[DataclassInstance], str]] = {
    EgressTopicSettings: (EgressSettings, "topics"),
    IngressSource: (IngressSettings, "sources"),
}
_NOTES: Mapping[str, tuple[str, ...]] = {
    "": ("Any text may contain ${NAME}, a variable of the environment. [format_options] goes to the format.",),
    "[kafka]": (
        "Any librdkafka property; [kafka.consumer], [kafka.producer], [kafka.admin] overlay it for one kind of client.",
        '"bootstrap.servers" is required.',
    ),
    '[egress.topics."name"]': (
        'Also [egress.topics."^expression"], which must match the whole name. [egress.defaults] has the same keys.',
    ),
    "[[ingress.sources]]": ("[ingress.defaults] has the same keys, but for topic.",),
    "[compaction]": ("[compaction.spark] takes any of Spark's own properties.",),
    "[[compaction.jobs]]": ("[compaction.defaults] has the same keys, but for name.",),
    '[retention.topics."name"]': (
        'Also [retention.topics."^expression"], which must match the whole name; without limits it keeps for ever.',
        "[retention.defaults] has the same keys.",
    ),
    FLOW_HEADER: (
        "A file of several regions has [clusters.A.kafka], [clusters.A.s3] and so on in place of the tables above, "
        "over [cluster_defaults.kafka] and so on.",
        "A flow also takes the settings of [[ingress.sources]], but for region and topic; its replication_policy is "
        '"default" unless the file says otherwise. [flow_defaults] has the same keys.',
    ),
    "[sync]": ("[sync.destination] has the keys of [s3]; [sync.queue] those of [sqs].",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting. `default` is written as in the file; None when the setting is required or has none."""

    section: str
    name: str
    type: str
    required: bool
    default: str | None
    doc: str
    reloads: bool  # a running service takes a change over; else it needs a restart


def entries() -> Iterator[Entry]:
    """All settings, in the order of the file."""
    for section, cls, elsewhere in _SECTIONS:
        parent = _TABLES_OF.get(cls)
        reloads = parent is not None and of(settings_of(parent[0])[parent[1]]).reloads
        hints = typing.get_type_hints(cls)
        for name, field in settings_of(cls).items():
            if name not in elsewhere:
                yield Entry(
                    section=section,
                    name=name,
                    type=_type(hints[name], of(field)) + _limits(of(field)),
                    required=_is_required(field),
                    default=_default(field),
                    doc=of(field).doc,
                    reloads=of(field).reloads or reloads,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table of the file. `header` is empty at the top level; `about` is empty if the settings class has no
    docstring."""

    header: str
    about: str
    notes: tuple[str, ...]


def sections() -> Iterator[Section]:
    """All tables, in the order of the file."""
    for header, cls, _ in _SECTIONS:
        about = (cls.__doc__ or "").strip().splitlines()[0]
        made_up = about.startswith(cls.__name__)  # the docstring that dataclass generates
        yield Section(header=header, about="" if made_up else about, notes=_NOTES.get(header, ()))


def template() -> str:
    """A configuration file with all settings: required ones empty, the others commented out with their defaults."""
    lines: list[str] = []
    by_section: dict[str, list[Entry]] = {header: [] for header, _, _ in _SECTIONS}
    for entry in entries():
        by_section[entry.section].append(entry)
    for section in sections():
        if lines:
            lines.append("")
        sign = "#" if section.header == FLOW_HEADER else ""  # another kind of file
        if section.header:
            lines.append(sign + section.header)
        lines += [f"# {text}" for text in (section.about, *section.notes) if text]
        for entry in by_section[section.header]:
            about = f"# {entry.doc} ({entry.type}{'; reloads' if entry.reloads else ''})"
            line = f"#{entry.name} = {entry.default or ''}".rstrip() if sign else _line(entry)
            lines += ["", about, line]
    return "\n".join(lines) + "\n"


def _line(entry: Entry) -> str:
    if entry.required:
        return f"{entry.name} =  # required"
    return f"# {entry.name} = {'' if entry.default is None else entry.default}".rstrip()


def _limits(known: FieldInfo) -> str:
    text = ""
    for word, limit in (("at least", known.minimum), ("at most", known.maximum)):
        if limit is not None:
            text += f", {word} {written(known, limit)}"
    return text


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Field[Any]) -> str | None:
    value = field.default
    if value is MISSING or value is None:
        return None
    if isinstance(value, timedelta):
        return toml_value(format_duration(value))
    if of(field).is_size:
        return toml_value(format_size(value))
    return toml_value(list(value) if isinstance(value, tuple) else value)


def _type(hint: object, known: FieldInfo) -> str:
    if hint == StartPolicy:
        return '"earliest", "latest" or a time with zone'
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _type(next(arg for arg in args if arg is not type(None)), known)
    if origin is Literal:
        return " or ".join(f'"{choice}"' for choice in args)
    if origin is tuple:
        return f"list of {_type(args[0], known)}"
    names: dict[object, str] = {
        str: "text",
        int: "size" if known.is_size else "whole number",
        bool: "true or false",
        timedelta: "duration",
        Path: "path",
        TopicPattern: "name or ^expression",
        GroupPattern: "name or ^expression",
        HeldOffsets: "partition:first-last",
    }
    return names[hint]
