"""What each setting of a file means, its value, where that comes from, and whether a change of it reloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from formats.topic_selection import TopicRule
from infra.settings.field import dotted, of, settings_of
from infra.settings.kafka import AUTH_NAMES, ROLES, KafkaSettings
from infra.settings.secrets import Path, references
from replicator.config.convert import flattened
from replicator.config.flows import RegionTables
from replicator.config.reference import Entry, entries
from replicator.config.settings import Config
from replicator.config.show import kafka_table, table_of, toml_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DEFAULT = "the default"
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingExplanation:
    """One setting. `value` is written as in the file, secrets masked; None when it has none."""

    name: str
    value: str | None
    origin: str
    doc: str
    reloads: bool
    place: str = ""  # in a file of several regions

    @property
    def text(self) -> str:
        head = f"{self.name}: not set" if self.value is None else f"{self.name} = {self.value}"
        change = "a running service takes a change over" if self.reloads else "a change needs a restart"
        return f"{head}\n    {self.doc}\n    {self.origin}; {change}"


def explain_settings(config: Config, file: RegionTables) -> Iterator[SettingExplanation]:
    """All settings of the sections that `config` has, in their order. `file`: what it was parsed from, before variables
    are replaced."""
    for one in _of(config, (), file.tables, reloads=False):
        yield _placed(one, file) if file.written else one


def _placed(one: SettingExplanation, file: RegionTables) -> SettingExplanation:
    """With where it is, in a file of several regions."""
    origin, _, path = one.origin.partition(", by ")
    place = file.where(path or one.name)
    if one.name in file.assumed:
        return replace(one, origin=f"{DEFAULT} of a flow", place=place)
    if one.name == "region":
        return replace(one, origin="the name of the cluster", place=place.removesuffix(".region"))
    return replace(one, origin=origin if origin == DEFAULT else f"{origin}, by {place}", place=place)


_DEFAULTS_OF = {
    "egress.defaults": "egress.topics",
    "ingress.defaults": "ingress.sources",
    "compaction.defaults": "compaction.jobs",
    "retention.defaults": "retention.topics",
}


def named(name: str, found: Sequence[SettingExplanation]) -> list[SettingExplanation]:
    """Those that `name` stands for: a path, with or without quotes, what lies below a path, or the last word of paths;
    also a path of a file of several regions. Of sections that the file does not have, too. Empty when there is no such
    setting. `egress.defaults.KEY` stands for the key of each [egress.topics], and so on."""
    section, _, key = name.rpartition(".")
    if (tables := _DEFAULTS_OF.get(section)) is not None:
        below = (f"{tables}.", f"{tables}[")
        of_tables = [one for one in found if one.name.startswith(below) and one.name.endswith(f".{key}")]
        return of_tables or [_absent(one) for one in entries() if _path(one) == f"{tables}.{key}"]
    of_file = [one for one in found if _matches(name, one.name) or (one.place and _matches(name, one.place))]
    return of_file or [_absent(entry) for entry in entries() if _matches(name, _path(entry))]


def setting_names() -> list[str]:
    """Of all settings that there are."""
    return [_path(entry) for entry in entries()]


def _of(
    settings: DataclassInstance, path: Path, tree: Mapping[str, object], *, reloads: bool
) -> Iterator[SettingExplanation]:
    """`reloads`: of the setting that `settings` lie in."""
    if isinstance(settings, KafkaSettings):
        yield from _kafka(settings, tree)
        return
    table = table_of(settings)
    for name, field in settings_of(type(settings)).items():
        known, value, here = of(field), getattr(settings, name), (*path, name)
        is_reloaded = reloads or known.reloads
        below = list(_below(value, here))
        for one, where in below:
            yield from _of(one, where, tree, reloads=is_reloaded)
        if not below and not (value is None and known.doc.startswith("[")):  # a section that the file does not have
            yield SettingExplanation(
                name=dotted(here),
                value=toml_value(table[name]) if name in table else None,
                origin=_origin(tree, here),
                doc=known.doc,
                reloads=is_reloaded,
            )


def _below(value: object, path: Path) -> Iterator[tuple[DataclassInstance, Path]]:
    """The settings in a setting: of a section, of topics by name, or of a list of tables."""
    if isinstance(value, tuple):
        for n, one in enumerate(value):
            if isinstance(one, TopicRule):
                yield one.settings, (*path, one.pattern.text)
            elif _is_section(one):
                yield one, (*path, n)
    elif _is_section(value):
        yield value, path  # type: ignore[misc]  # no other value is a dataclass with settings


def _is_section(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and bool(settings_of(type(value)))


def _kafka(settings: KafkaSettings, tree: Mapping[str, object]) -> Iterator[SettingExplanation]:
    fields = settings_of(KafkaSettings)
    table: Any = kafka_table(settings)
    raw = tree.get("kafka")
    written = dict(flattened(raw)) if isinstance(raw, dict) else {}
    for role in ("base", *ROLES):
        properties = table.get(role, {}) if role != "base" else {k: v for k, v in table.items() if k not in ROLES}
        for name, value in properties.items():
            path = (name,) if role == "base" else (role, name)
            field = fields[name if role == "base" and name in AUTH_NAMES else role]
            yield SettingExplanation(
                name=dotted(("kafka", *path)),
                value=toml_value(value),
                origin=_written(written.get(".".join(path), _ABSENT)),
                doc=of(field).doc,
                reloads=of(field).reloads,
            )


def _origin(tree: Mapping[str, object], path: Path) -> str:
    if (raw := _lookup(tree, path)) is not _ABSENT:
        return _written(raw)
    for other in _defaults(path):
        if (raw := _lookup(tree, other)) is not _ABSENT:
            return f"{_written(raw)}, by {dotted(other)}"
    return DEFAULT


def _defaults(path: Path) -> Iterator[Path]:
    """Where a setting of a topic, a source or a job has its value from, if not from its own table."""
    match path:
        case (section, "topics" | "sources" | "jobs", _, name):
            yield (section, "defaults", name)
            if section == "ingress":
                yield (section, name)  # of the replication policy


def _written(raw: object) -> str:
    if raw is _ABSENT:
        return DEFAULT
    variables = list(dict.fromkeys(_variables(raw)))
    return f"from the environment, {', '.join(variables)}" if variables else "from the file"


def _variables(raw: object) -> Iterator[str]:
    match raw:
        case str():
            yield from references(raw)
        case list():
            for item in raw:
                yield from _variables(item)
        case dict():
            for item in raw.values():
                yield from _variables(item)


def _lookup(tree: object, path: Path) -> object:
    for part in path:
        match tree, part:
            case dict(), _ if part in tree:
                tree = tree[part]
            case list(), int() if part < len(tree):
                tree = tree[part]
            case _:
                return _ABSENT
    return tree


def _matches(name: str, path: str) -> bool:
    name, path = name.replace('"', ""), path.replace('"', "")
    return path == name or path.startswith((f"{name}.", f"{name}[")) or path.endswith(f".{name}")


def _path(entry: Entry) -> str:
    section = entry.section.strip("[]").replace('."name"', "")
    return f"{section}.{entry.name}" if section else entry.name


def _absent(entry: Entry) -> SettingExplanation:
    return SettingExplanation(
        name=_path(entry),
        value=entry.default,
        origin=f"the default; the file has no {entry.section}",
        doc=entry.doc,
        reloads=entry.reloads,
    )
