"""`replicator config …` and `replicator explain …`: what the file says and means."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from replicator.commands.terminal import (
    USAGE,
    AsJson,
    ConfigFile,
    config_path,
    group,
    load_config,
    print_json,
    print_text,
)
from replicator.errors import ConfigError

config_app = group("Check, show and explain the configuration file.")
explain_app = group("Say what the configuration means for one thing, and why.")


@config_app.command("check")
def config_check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Read the file and tell every problem. Asks no cluster and no bucket."""
    path = config_path(config)
    try:
        settings = load_config(config)
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"ok": False, "source": error.source, "problems": list(error.problems)})
        raise typer.Exit(USAGE) from None
    if as_json:
        print_json({"ok": True, "source": settings.source, "problems": []})
        return
    parts = [f"region {settings.region}"]
    if settings.egress is not None:
        parts.append(f"egress of {len(settings.egress.topics)} topic rule(s)")
    if settings.ingress is not None:
        parts.append(f"ingress of {len(settings.ingress.sources)} source(s)")
    if settings.sync is not None:
        parts.append(f"sync to {settings.sync.destination.bucket}")
    if settings.retention is not None:
        parts.append(f"retention of {len(settings.retention.topics)} topic rule(s)")
    print_text(f"{path}: no problems; {', '.join(parts)}")


@config_app.command("show")
def config_show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the whole configuration as understood: defaults included, secrets masked."""
    from replicator.config.show import to_tables, to_toml

    tables = to_tables(load_config(config))
    if as_json:
        print_json(tables)
    else:
        print_text(to_toml(tables), end="")


@config_app.command("schema")
def config_schema(as_json: AsJson = False) -> None:
    """Print every setting with its type, default and meaning."""
    from replicator.config.schema import entries, template

    if as_json:
        print_json([asdict(entry) for entry in entries()])
    else:
        print_text(template(), end="")


@explain_app.command("topic")
def explain_topic(
    name: Annotated[str, typer.Argument(metavar="NAME")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Say whether a topic is archived here, delivered here and removed here, and by which rule."""
    from replicator.config.explain import explain_topic as explain

    answers = explain(load_config(config), name)
    if as_json:
        print_json([asdict(answer) for answer in answers])
        return
    for answer in answers:
        print_text(answer.text)
    if not answers:
        print_text("the configuration has neither [egress] nor [ingress], and no [retention]")
