"""A Config as the file that it could be loaded from, without its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from compaction.retention_settings import HeldOffsets
from formats.topic_selection import TopicPattern, TopicRule
from infra.settings.field import dotted, of, quoted, settings_of
from infra.settings.kafka import AUTH_NAMES, ROLES, KafkaSettings
from infra.settings.secrets import MASK, escape, is_secret, without_credentials
from infra.settings.units import format_duration, format_size
from replicator.config.settings import Config

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Table = dict[str, object]


def to_tables(config: Config) -> Table:
    """Nested tables of plain values, with defaults, as `from_mapping` reads them; secrets are masked."""
    tables = table_of(config)
    if config.kafka is not None:
        tables["kafka"] = kafka_table(config.kafka)
    if not config.format_options:
        del tables["format_options"]
    if config.egress is not None:
        egress = table_of(config.egress)
        egress["topics"] = {rule.pattern.text: table_of(rule.settings) for rule in config.egress.topics}
        tables["egress"] = egress
    if config.retention is not None:
        retention = table_of(config.retention)
        retention["topics"] = {rule.pattern.text: table_of(rule.settings) for rule in config.retention.topics}
        tables["retention"] = retention
    return tables


def to_toml(tables: Mapping[str, object]) -> str:
    """The tables as TOML that `parse` reads back to the same values."""
    return "\n".join(_toml(tables, ())).strip() + "\n"


def table_of(settings: DataclassInstance) -> Table:
    """The table of one section, without settings that are None."""
    table: Table = {}
    for name, field in settings_of(type(settings)).items():
        value = getattr(settings, name)
        if value is None:
            continue
        known = of(field)
        if known.is_size:
            table[name] = format_size(value)
        else:
            table[name] = MASK if known.is_secret else _plain(value)
    return table


def _plain(value: object) -> object:
    match value:
        case timedelta():
            return format_duration(value)
        case Path() | TopicPattern() | HeldOffsets():
            return str(value)
        case tuple() | list():
            return [_plain(item) for item in value if not isinstance(item, TopicRule)]
        case Mapping():
            return {k: MASK if is_secret(k) and isinstance(v, str) and v else _plain(v) for k, v in value.items()}
        case str():
            return without_credentials(value)
        case int() | float() | date() | time():
            return value
        case _:
            return table_of(value)  # type: ignore[arg-type]  # settings within settings


def kafka_table(kafka: KafkaSettings) -> Table:
    """The properties of every client, and a table for each role that has properties of its own."""
    table = _plain(kafka.base)
    assert isinstance(table, dict)
    table = {name: getattr(kafka, name) for name in AUTH_NAMES if getattr(kafka, name) is not None} | table
    return table | {role: _plain(getattr(kafka, role)) for role in ROLES if getattr(kafka, role)}


def _toml(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table. Values come first: after a sub-table they would belong to it."""
    for key, value in table.items():
        if not _is_table(value) and not _is_tables(value):
            yield f"{dotted((key,))} = {toml_value(value)}"
    for key, value in table.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            if not value or not all(map(_is_table, value.values())):  # otherwise the headers of its tables suffice
                yield f"\n[{dotted(here)}]"
            yield from _toml(value, here)
        elif _is_tables(value):
            assert isinstance(value, list)
            for item in value:
                yield f"\n[[{dotted(here)}]]"
                yield from _toml(item, here)


def toml_value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(escape(value))
        case int() | float():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{_key(k)} = {toml_value(v)}' for k, v in value.items())}}}"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: object) -> str:
    return dotted((str(key),))
