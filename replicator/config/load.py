"""Loads a Config from a TOML file or nested mappings, or raises one ConfigError with every problem and its path."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from formats.errors import ConfigError
from infra.settings.field import Invalid, Problem
from infra.settings.secrets import substitute
from replicator.config.flows import tables_of
from replicator.config.flows_form import is_flows, problems, regions_of
from replicator.config.sections import CheckClient, Sections
from replicator.config.settings import Config
from replicator.config.table_reader import TableReader

TOO_DEEP = "tables or lists are nested too deeply"
REGION_SIGN = "#"  # FILE#REGION
AS_PATH = f", as FILE{REGION_SIGN}REGION"  # behind "name one of them", where a path may name it


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
    reader = TableReader()
    try:
        environment = os.environ if environment is None else environment
        tree = substitute(found.tables, environment, reader.problem, reader.unset, literal_secrets=literal_secrets)
        config = Sections(reader, check_client).config(tree, source)
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
