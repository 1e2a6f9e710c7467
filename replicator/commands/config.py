"""`replicator config …` and `replicator explain …`: check, show, explain and import the configuration."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import ConfigError
from replicator.commands.config_import import import_mm1, import_mm2
from replicator.terminal.output import (
    USAGE,
    AsJson,
    ConfigFile,
    complain,
    config_path,
    group,
    load_config,
    print_json,
    print_text,
    refused_by_client,
    settings_file,
)
from replicator.terminal.region_option import HINT, region_option

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.config.explain import Explanation

config_app = group("Check and show the configuration file.")
explain_app = group("Explain what the configuration means for a topic or a group.")


@config_app.command("check")
def config_check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Several files are also checked against each other."),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check one file, or several beside each other.

    Names every problem; asks no cluster and no bucket. Of several files it names, too, which topics would come back to
    where they were, for ever, since no lineage is known there, and which groups, checkpoints, queues and destinations
    two of them share. A file of several regions is checked for each of them; with --region, or as FILE#REGION, only for
    that.
    """
    from replicator.config.across import between_files, notes_between

    if files and config is not None:
        raise typer.BadParameter("--config names one file: give all of them as arguments")
    paths = list(dict.fromkeys(files or [config_path(config)]))
    found, refused, places = loaded_files(paths)
    between, notes = between_files(found, places), notes_between(found, places)
    if as_json:
        sound = [{"source": one.source, "problems": []} for one in found]
        bad = [{"source": one.source, "problems": list(one.problems)} for one in refused]
        print_json({"ok": not refused and not between, "files": [*sound, *bad], "between": between, "notes": notes})
    else:
        for error in refused:
            complain(str(error))
        for one in found:
            print_text(f"{one.source}: no problems; {', '.join(_parts(one))}")
        for problem in between:
            complain(problem)
        for note in notes:
            print_text(f"note: {note}")
        if len(found) > 1 and not refused and not between:
            what = "files" if len(found) == len(paths) else "regions"
            print_text(f"{len(found)} {what}: they do not contradict each other")
    if refused or between:
        raise typer.Exit(USAGE)


def loaded_files(paths: Sequence[Path]) -> tuple[list[Config], list[ConfigError], dict[str, Callable[[str], str]]]:
    """What each file says of each of its regions; problems; and where each of them has a path, by source."""
    from replicator.config import SettingsFile
    from replicator.config.flows import tables_of

    found: list[Config] = []
    refused: list[ConfigError] = []
    places: dict[str, Callable[[str], str]] = {}
    for path in paths:
        try:
            regions = SettingsFile.of(path, region_option(), refused_by_client, HINT).by_region()
        except ConfigError as error:
            refused.append(error)
            continue
        for one in regions:
            try:
                text = one.read()
                settings = one.parse(text)
                _check_format(settings)
                found.append(settings)
                places[settings.source] = tables_of(one.tree(text), one.region).where
            except ConfigError as error:
                refused.append(error)
    return found, refused, places


def _check_format(settings: Config) -> None:
    """Make the format, if the file says anything of it: its arguments are its own, and Arrow is loaded for it. Raises
    ConfigError."""
    from formats.registry import OURS, load

    if settings.format == OURS.name and not settings.format_options:
        return
    try:
        load(settings.format, settings.format_options)
    except ConfigError as error:
        raise ConfigError([f"{error.source}: {one}" for one in error.problems], source=settings.source) from error


def _parts(settings: Config) -> Iterator[str]:
    yield f"region {settings.region}"
    if settings.egress is not None:
        yield f"egress of {_some(len(settings.egress.topics), 'topic rule')}"
    if settings.ingress is not None:
        yield f"ingress of {_some(len(settings.ingress.sources), 'source')}"
    if settings.sync is not None:
        yield f"sync to {settings.sync.destination.bucket}"
    if settings.compaction is not None:
        names = ", ".join(job.name for job in settings.compaction.jobs) or "none"
        yield f"compaction jobs: {names}"
    if settings.retention is not None:
        yield f"retention of {_some(len(settings.retention.topics), 'topic rule')}"


def _some(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


@config_app.command("show")
def config_show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the whole configuration as understood.

    Defaults are included, secrets masked.
    """
    from replicator.config.show import to_tables, to_toml

    tables = to_tables(load_config(config))
    if as_json:
        print_json(tables)
    else:
        print_text(to_toml(tables), end="")


@config_app.command("schema")
def config_schema(as_json: AsJson = False) -> None:
    """Print every setting with its type, default and meaning."""
    from replicator.config.reference import entries, template

    if as_json:
        print_json([asdict(entry) for entry in entries()])
    else:
        print_text(template(), end="")


@config_app.command("explain")
def config_explain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A setting, such as egress.exclude or group_id, or a section."),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Explain each setting: its meaning, its value, and where that comes from.

    And whether a running egress or ingress takes a change of it over, or needs a restart.
    """
    from infra.settings.field import suggestion
    from replicator.config.explain_settings import explain_settings, named, setting_names
    from replicator.config.flows import tables_of

    file = settings_file(config)
    text = file.read()
    settings = file.parse(text)
    found = list(explain_settings(settings, tables_of(file.tree(text), file.region)))
    if name is not None:
        found = named(name, found)
        if not found:
            raise typer.BadParameter(f"there is no setting {name!r}{suggestion(name, setting_names())}")
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_text("\n".join(one.text for one in found))


config_app.command("import-mm2")(import_mm2)
config_app.command("import-mm1")(import_mm1)


@explain_app.command("topic")
def explain_topic(
    name: Annotated[str, typer.Argument(metavar="NAME")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Explain which rules select a topic here, and what it is called at the target.

    For archiving, for delivery and for removal.
    """
    from formats.topic_selection import TopicPattern
    from replicator.config.explain import explain_topic as explain

    try:
        is_expression = TopicPattern(name).is_expression
    except ValueError as error:
        raise typer.BadParameter(f"no topic may be called so: {error}") from error
    if is_expression:
        raise typer.BadParameter(f"{name!r} is an expression: name one topic")
    answers = explain(load_config(config), name)
    _print(answers, "the configuration has neither [egress] nor [ingress], and no [retention]", as_json=as_json)


@explain_app.command("group")
def explain_group(
    name: Annotated[str, typer.Argument(metavar="NAME")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Explain what is done with the offsets of a consumer group.

    By egress with those of this region, and by ingress with those of each source region.
    """
    from replicator.config.explain import explain_group as explain

    answers = explain(load_config(config), name)
    _print(answers, "the configuration has neither [egress] nor [ingress]", as_json=as_json)


def _print(answers: Sequence[Explanation], nothing: str, *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(answer) for answer in answers])
        return
    for answer in answers:
        print_text(answer.text)
    if not answers:
        print_text(nothing)
