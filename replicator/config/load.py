"""Loads a Config from a TOML file or nested mappings, or raises one ConfigError with every problem and its path.

An invalid value falls back to its default while reading continues, so that one mistake does not hide the next.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from compaction.retention_settings import RetentionRule, RetentionSettings
from compaction.settings import CompactionJob, CompactionSettings
from egress.settings import EgressSettings, EgressTopicSettings
from egress.sync_settings import SyncSettings
from formats.errors import ConfigError
from formats.topic_selection import TopicPattern, TopicRule
from infra.settings.encryption import EncryptionSettings
from infra.settings.field import Invalid, Problem, dotted, of, outside_limits, settings_of, suggestion
from infra.settings.kafka import AUTH_NAMES, ROLES, KafkaSettings
from infra.settings.schema_registry import SchemaRegistrySettings
from infra.settings.secrets import Path as KeyPath
from infra.settings.secrets import substitute
from infra.settings.storage import S3Settings, SqsSettings
from ingress.groups.settings import GroupSettings
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.contradictions import NO_KAFKA, NO_QUEUE, between
from replicator.config.convert import convert, flattened, kind
from replicator.config.flows import tables_of
from replicator.config.flows_form import is_flows, problems, regions_of
from replicator.config.settings import Config, LogSettings, MetricsSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

from infra.settings.field import UNKNOWN

S = TypeVar("S", bound="DataclassInstance")
CheckClient = Callable[[Mapping[str, str]], Iterable[tuple[str, str]]]
"""Maps librdkafka properties to those that the client refuses, each with the reason."""

TOO_DEEP = "tables or lists are nested too deeply"
REGION_SIGN = "#"  # FILE#REGION
AS_PATH = f", as FILE{REGION_SIGN}REGION"  # behind "name one of them", where a path may name it
SECTIONS = (
    *("kafka", "s3", "sqs", "egress", "ingress", "sync", "compaction", "retention", "schema_registry"),
    *("encryption", "groups", "metrics", "log"),
)
ALONE = ("kafka", "schema_registry", "encryption", "groups", "metrics", "log")
"""Sections that contradict no other."""


def load(path: Path | str, *, region: str | None = None, check_client: CheckClient = lambda _: ()) -> Config:
    """Load a file, and of one with several regions what it says of `region`; the path may name it, too, as
    "FILE#REGION". Raises ConfigError, also when the file cannot be read.

    Without `check_client`, unknown librdkafka properties are refused when the client is created, one at a time.
    """
    return SettingsFile.of(path, region, check_client, AS_PATH).load()


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file that may be read again and again. Its methods raise ConfigError.

    `region`: of a file with several; a file of one region has to be of this one. `hint`: how it is named, for messages.
    """

    path: Path
    check_client: CheckClient = lambda _: ()
    region: str | None = None
    hint: str = ""

    @classmethod
    def of(
        cls, path: Path | str, region: str | None = None, check_client: CheckClient = lambda _: (), hint: str = ""
    ) -> SettingsFile:
        """`path` may be "FILE#REGION", unless a file has this name. Raises ConfigError when `region` is another one."""
        file, sign, half = str(path).rpartition(REGION_SIGN)
        if not sign or Path(path).exists():
            return cls(Path(path), check_client, region, hint)
        if region and half and region != half:
            raise ConfigError([f"names two regions, {half!r} and {region!r}: leave one of them out"], source=str(path))
        return cls(Path(file), check_client, region or half, hint)

    def load(self) -> Config:
        return self.parse(self.read())

    def parse(self, text: str) -> Config:
        return parse(text, source=str(self.path), check_client=self.check_client, region=self.region, hint=self.hint)

    def read(self) -> str:
        return read(self.path)

    def tree(self, text: str) -> dict[str, object]:
        """The file's own tables, before variables are replaced."""
        return toml(text, str(self.path))

    def by_region(self) -> list[SettingsFile]:
        """One for each region of the file, or only this one if it names its region or the file has one."""
        tree = self.tree(self.read())
        if self.region is not None or not is_flows(tree):
            return [self]
        if found := list(problems(tree)):
            raise _refused(found, str(self.path))
        return [replace(self, region=region) for region in regions_of(tree)]


NO_FILE = "there is no such file"


def read(path: Path, *, advice: str = f"{NO_FILE}; name one with --config FILE or $REPLICATOR_CONFIG") -> str:
    """The text of a file. `advice`: on one that does not exist. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError([advice], source=str(path)) from None
    except IsADirectoryError:
        raise ConfigError(["is a folder; name a file"], source=str(path)) from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError([f"cannot be read: {error}"], source=str(path)) from error


def parse(
    text: str,
    *,
    source: str = "configuration",
    environment: Mapping[str, str] | None = None,
    check_client: CheckClient = lambda _: (),
    region: str | None = None,
    hint: str = "",
) -> Config:
    """Parse TOML. Raises ConfigError; a literal secret is a problem. `region`, `hint`: as of SettingsFile."""
    mapping = toml(text, source)
    return _config(mapping, source, environment, check_client, region=region, hint=hint, literal_secrets=False)


def toml(text: str, source: str) -> dict[str, object]:
    """The tables of a file. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([f"is not TOML: {error}"], source=source) from error


def from_mapping(
    mapping: Mapping[str, object],
    *,
    source: str = "python",
    environment: Mapping[str, str] | None = None,
    region: str | None = None,
) -> Config:
    """As `parse`, from nested tables. Literal secrets are allowed: the program knows where they come from."""
    return _config(mapping, source, environment, lambda _: (), region=region, hint="", literal_secrets=True)


def _config(
    mapping: Mapping[str, object],
    source: str,
    environment: Mapping[str, str] | None,
    check_client: CheckClient,
    *,
    region: str | None,
    hint: str,
    literal_secrets: bool,
) -> Config:
    try:
        found = tables_of(mapping, region, hint=hint)
    except Invalid as invalid:
        raise _refused(invalid.problems, source) from invalid
    except RecursionError:
        raise ConfigError([TOO_DEEP], source=source) from None
    source = f"{source}{REGION_SIGN}{found.region}" if is_flows(mapping) else source
    reader = _Reader(check_client)
    try:
        environment = os.environ if environment is None else environment
        tree = substitute(found.tables, environment, reader.problem, reader.unset, literal_secrets=literal_secrets)
        config = reader.config(tree, source)
    except RecursionError:
        raise ConfigError([TOO_DEEP], source=source) from None
    if config is None or reader.problems or reader.variables:
        raise ConfigError(reader.messages(found.where), source=source)
    if region not in (None, config.region):
        what = f"region: is {config.region!r}: this is not the file of the region {region!r}"
        raise ConfigError([what], source=source)
    return replace(config, absent=found.absent)


def _refused(problems: Iterable[Problem], source: str) -> ConfigError:
    return ConfigError([f"{where}: {what}" if where else what for where, what in problems], source=source)


class _Reader:
    """Reads one file and collects `problems`. Every method returns None for invalid or missing parts."""

    def __init__(self, check_client: CheckClient) -> None:
        self._check_client = check_client
        self.problems: list[str] = []
        self.variables: dict[str, list[str]] = {}  # unset variable -> paths that need it

    def problem(self, path: KeyPath, what: str) -> None:
        self.problems.append(f"{dotted(path)}: {what}" if path else what)

    def unset(self, path: KeyPath, variable: str) -> None:
        paths = self.variables.setdefault(variable, [])
        if dotted(path) not in paths:
            paths.append(dotted(path))

    def messages(self, where: Callable[[str], str]) -> list[str]:
        """All problems without duplicates. Problems of a setting whose variable is not set are left out. `where`: the
        path in the file of a path that was read."""
        lacking = {path for paths in self.variables.values() for path in paths}
        missing = [
            f"{where(first)}: the environment variable {name} is not set"
            + (f" (also for {', '.join(map(where, rest))})" if rest else "")
            for name, (first, *rest) in self.variables.items()
        ]
        split = [problem.partition(": ") for problem in self.problems]
        own = [f"{where(path)}: {what}" for path, _, what in split if path not in lacking or UNKNOWN in what]
        return list(dict.fromkeys([*missing, *own]))

    def config(self, tree: object, source: str) -> Config | None:
        values = self._values(Config, tree, (), own=SECTIONS, partial=True)
        if values is None or not isinstance(tree, dict):
            return None
        sections: dict[str, Any] = {
            "kafka": self._kafka(tree["kafka"]) if "kafka" in tree else None,
            "s3": self._section(S3Settings, tree.get("s3"), ("s3",)) if "s3" in tree else None,
            "sqs": self._section(SqsSettings, tree["sqs"], ("sqs",)) if "sqs" in tree else None,
            "egress": self._egress(tree["egress"]) if "egress" in tree else None,
            "ingress": self._ingress(tree["ingress"]) if "ingress" in tree else None,
            "sync": self._sync(tree["sync"]) if "sync" in tree else None,
            "compaction": self._compaction(tree["compaction"]) if "compaction" in tree else None,
            "retention": self._retention(tree["retention"]) if "retention" in tree else None,
            "schema_registry": self._section(SchemaRegistrySettings, tree["schema_registry"], ("schema_registry",))
            if "schema_registry" in tree
            else None,
            "encryption": self._section(EncryptionSettings, tree["encryption"], ("encryption",))
            if "encryption" in tree
            else None,
            "groups": self._section(GroupSettings, tree.get("groups", {}), ("groups",)),
            "metrics": self._section(MetricsSettings, tree.get("metrics", {}), ("metrics",)),
            "log": self._section(LogSettings, tree.get("log", {}), ("log",)),
        }
        if "region" not in tree:
            self.problem(("region",), "missing: the name of this region, which its archive carries")
        if "s3" not in tree:
            self.problem(("s3",), 'missing: the archive\'s [s3] section with its "bucket"')
        if not self.problems:
            return self._built(Config, values | sections | {"source": source}, ())
        # There are problems already; add the contradictions between the valid sections.
        present = {name: sections[name] for name in SECTIONS if name not in ALONE}
        self.problems += [f"{path}: {what}" for path, what in between(region=values.get("region"), **present)]
        if "ingress" in tree and "sqs" not in tree:
            self.problems.append(": ".join(NO_QUEUE))
        if "kafka" not in tree and ("egress" in tree or "ingress" in tree):
            self.problems.append(": ".join(NO_KAFKA))
        return None

    def _kafka(self, raw: object) -> KafkaSettings | None:
        if not isinstance(raw, dict):
            self.problem(("kafka",), f"must be a table, not {kind(raw)}")
            return None
        tables: dict[str, object] = {role: raw.get(role, {}) for role in ROLES}
        values = {role: self._properties(table, ("kafka", role)) for role, table in tables.items()}
        own = self._values(KafkaSettings, {k: v for k, v in raw.items() if k in AUTH_NAMES}, ("kafka",), partial=True)
        base = self._properties({k: v for k, v in raw.items() if k not in (*ROLES, *AUTH_NAMES)}, ("kafka",))
        for table, where in ((base, ("kafka",)), *((values[role], ("kafka", role)) for role in ROLES)):
            for name, what in self._check_client(table):
                self.problem((*where, name), what)
        return self._built(KafkaSettings, {"base": base, **values, **(own or {})}, ("kafka",))

    def _properties(self, raw: object, path: KeyPath) -> dict[str, str]:
        """librdkafka properties as text. `a.b = 1` without quotes is nested tables in TOML, and means "a.b" here."""
        if not isinstance(raw, dict):
            self.problem(path, f"must be a table, not {kind(raw)}")
            return {}
        flat: dict[str, str] = {}
        for name, value in flattened(raw):
            if name in flat:
                self.problem((*path, name), "is set twice, with quotes and without")
            match value:
                case bool():
                    flat[name] = "true" if value else "false"
                case str() | int() | float():
                    flat[name] = str(value)
                case _:
                    self.problem((*path, name), f"must be a text, a number, true or false, not {kind(value)}")
        return flat

    def _egress(self, raw: object) -> EgressSettings | None:
        path = ("egress",)
        values = self._values(EgressSettings, raw, path, own=("topics", "defaults"), deeper=EgressTopicSettings)
        if values is None or not isinstance(raw, dict):
            return None
        rules = self._topic_rules(EgressTopicSettings, raw, path)
        return None if rules is None else self._built(EgressSettings, values | {"topics": rules}, path)

    def _retention(self, raw: object) -> RetentionSettings | None:
        path = ("retention",)
        values = self._values(RetentionSettings, raw, path, own=("topics", "defaults"), deeper=RetentionRule)
        if values is None or not isinstance(raw, dict):
            return None
        rules = self._topic_rules(RetentionRule, raw, path)
        return None if rules is None else self._built(RetentionSettings, values | {"topics": rules}, path)

    def _topic_rules(
        self, cls: type[S], raw: Mapping[str, object], path: tuple[str, ...]
    ) -> tuple[TopicRule[S], ...] | None:
        """The rules of the tables below `topics`, completed by the values of `defaults`."""
        defaults = self._values(cls, raw.get("defaults", {}), (*path, "defaults")) or {}
        topics = raw.get("topics", {})
        if not isinstance(topics, dict):
            self.problem((*path, "topics"), f'must be tables such as [{path[0]}.topics."name"], not {kind(topics)}')
            return None
        rules = []
        for text, table in topics.items():
            here = (*path, "topics", text)
            pattern = self._pattern(text, here)
            settings = self._section(cls, table, here, defaults)
            if pattern is not None and settings is not None:
                rules.append(TopicRule(pattern, settings))
        return None if topics and not rules else tuple(rules)

    def _ingress(self, raw: object) -> IngressSettings | None:
        path = ("ingress",)
        values = self._values(IngressSettings, raw, path, own=("sources", "defaults"), deeper=IngressSource)
        if values is None or not isinstance(raw, dict):
            return None
        defaults = self._values(IngressSource, raw.get("defaults", {}), (*path, "defaults"), partial=True) or {}
        if "topic" in defaults:
            self.problem((*path, "defaults", "topic"), "belongs to a source; a default would deliver it many times")
        tables = raw.get("sources", [])
        if not isinstance(tables, list):
            self.problem((*path, "sources"), f"must be tables, each under [[ingress.sources]], not {kind(tables)}")
            return None
        sources = [
            self._section(IngressSource, table, (*path, "sources", n), _defaults_of(table, defaults))
            for n, table in enumerate(tables)
        ]
        if None in sources:
            return None
        return self._built(IngressSettings, values | {"sources": tuple(sources)}, path)

    def _sync(self, raw: object) -> SyncSettings | None:
        path = ("sync",)
        values = self._values(SyncSettings, raw, path, own=("destination", "queue"))
        if values is None or not isinstance(raw, dict):
            return None
        if "destination" not in raw:
            self.problem((*path, "destination"), 'missing: the [sync.destination] section with its "bucket"')
            return None
        destination = self._section(S3Settings, raw["destination"], (*path, "destination"))
        queue = self._section(SqsSettings, raw["queue"], (*path, "queue")) if "queue" in raw else None
        if destination is None:
            return None
        return self._built(SyncSettings, values | {"destination": destination, "queue": queue}, path)

    def _compaction(self, raw: object) -> CompactionSettings | None:
        path = ("compaction",)
        values = self._values(CompactionSettings, raw, path, own=("jobs", "defaults", "spark"), deeper=CompactionJob)
        if values is None or not isinstance(raw, dict):
            return None
        defaults = self._values(CompactionJob, raw.get("defaults", {}), (*path, "defaults"), partial=True) or {}
        if "name" in defaults:
            self.problem((*path, "defaults", "name"), "belongs to a job: no two may have the same")
        tables = raw.get("jobs", [])
        if not isinstance(tables, list):
            self.problem((*path, "jobs"), f"must be tables, each under [[compaction.jobs]], not {kind(tables)}")
            return None
        jobs = [self._section(CompactionJob, t, (*path, "jobs", n), defaults) for n, t in enumerate(tables)]
        if None in jobs:
            return None
        spark = self._properties(raw.get("spark", {}), (*path, "spark"))
        return self._built(CompactionSettings, values | {"jobs": tuple(jobs), "spark": spark}, path)

    def _pattern(self, text: str, path: KeyPath) -> TopicPattern | None:
        try:
            return TopicPattern(text)
        except ValueError as error:
            self.problem(path, str(error))
            return None

    def _section(
        self, cls: type[S], raw: object, path: KeyPath, defaults: Mapping[str, object] | None = None
    ) -> S | None:
        values = self._values(cls, raw, path, given=defaults or {})
        return None if values is None else self._built(cls, {**(defaults or {}), **values}, path)

    def _values(
        self,
        cls: type[DataclassInstance],
        raw: object,
        path: KeyPath,
        *,
        own: Collection[str] = (),
        given: Collection[str] = (),
        partial: bool = False,
        deeper: type[DataclassInstance] | None = None,
    ) -> dict[str, Any] | None:
        """The valid settings of `cls` in the table `raw`; None if a required one is missing or invalid.

        Keys in `own` are read by the caller; those in `given` have a value already; with `partial` nothing is required.
        `deeper` are the settings of the first two of `own`: a key of theirs that is set here is one table too high.
        """
        if not isinstance(raw, dict):
            self.problem(path, f"must be a table, not {kind(raw)}")
            return None
        fields = settings_of(cls)
        for key, value in raw.items():
            if deeper is not None and key not in (*fields, *own) and key in settings_of(deeper):
                self.problem(
                    (*path, key), "belongs one table deeper, into " + " or ".join(f'"{one}"' for one in (*own,)[:2])
                )
            elif key not in fields and key not in own:
                self.problem((*path, key), _unknown(key, value, path, [*fields, *own]))
        hints = get_type_hints(cls)
        values: dict[str, Any] = {}
        complete = True
        for name, field in fields.items():
            if name in own:
                continue
            if name in raw:
                try:
                    value = convert(hints[name], of(field), raw[name])
                    what = outside_limits(field, value)
                    if what is None:
                        values[name] = value
                        continue
                    self.problem((*path, name), what)
                except ValueError as error:
                    self.problem((*path, name), str(error))
                complete = complete and not _is_required(field)
            elif _is_required(field) and name not in given and not partial:
                self.problem((*path, name), f"missing: {of(field).doc}")
                complete = False
        return values if complete or partial else None

    def _built(self, cls: type[S], values: Mapping[str, Any], path: KeyPath) -> S | None:
        try:
            return cls(**values)
        except Invalid as invalid:
            self.problems += [
                ".".join(filter(None, (dotted(path), where))) + f": {what}" for where, what in invalid.problems
            ]
            return None


def _defaults_of(table: object, defaults: Mapping[str, object]) -> Mapping[str, object]:
    """A source's own replication policy beats the destination_topic of [ingress.defaults]."""
    if isinstance(table, dict) and "replication_policy" in table:
        return {name: value for name, value in defaults.items() if name != "destination_topic"}
    return defaults


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _unknown(key: str, value: object, path: KeyPath, valid: Collection[str]) -> str:
    if isinstance(value, dict) and path[1:2] == ("topics",):
        name = ".".join(map(str, (*path[2:], key)))
        return f'unknown key; a topic name with dots needs quotes: [{path[0]}.topics."{name}"]'
    near = suggestion(key, valid)
    return f"unknown key{near or '; known here: ' + ', '.join(sorted(set(valid)))}"
