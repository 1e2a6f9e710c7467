"""The command line. Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 differences found.

Every command imports what it needs itself, so that `--help` and `config check` answer at once.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.errors import ConfigError, ReplicatorError

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.service import Service

DONE, FAILED, USAGE, DIFFERENCES = 0, 1, 2, 3
CONFIG_VARIABLE = "REPLICATOR_CONFIG"
DEFAULT_CONFIG = Path("replicator.toml")

_PLAIN = {"help_option_names": ["-h", "--help"]}


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=_PLAIN,
    )


app = _group("Mirrors, backs up and restores Kafka topics across regions with object storage in between.")
config_app = _group("Check, show and explain the configuration file.")
explain_app = _group("Say what the configuration means for one thing, and why.")
local_app = _group("The embedded stack: two Kafka brokers, S3 and SQS on this machine.")
app.add_typer(config_app, name="config")
app.add_typer(explain_app, name="explain")
app.add_typer(local_app, name="local")

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help=f"Default: ${CONFIG_VARIABLE}, then ./{DEFAULT_CONFIG}."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and exit. What we raise on purpose is one message; anything else is a bug and keeps its traceback."""
    try:
        app(args=arguments, prog_name="replicator")
    except ConfigError as error:
        _say(str(error))
        sys.exit(USAGE)
    except ReplicatorError as error:
        _say(str(error))
        sys.exit(FAILED)


def _version(wanted: bool) -> None:
    if wanted:
        _print(f"replicator {version('kafka-segment-replicator')}")
        raise typer.Exit


@app.callback()
def _root(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# --- services --------------------------------------------------------------------------------------------------------


@app.command()
def egress(config: ConfigFile = None) -> None:
    """Archive this region's topics, until SIGTERM or Ctrl-C."""
    settings = _load(config)
    _logging(settings)
    from replicator.app import build_egress

    _run(lambda: build_egress(settings))


@app.command()
def ingress(config: ConfigFile = None) -> None:
    """Deliver archived topics to this region's cluster, until SIGTERM or Ctrl-C."""
    settings = _load(config)
    _logging(settings)
    from replicator.app import build_ingress

    _run(lambda: build_ingress(settings))


@app.command()
def sync(
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Copy what is missing now, then end.")] = False,
) -> None:
    """Copy this region's archive to another bucket, until SIGTERM or Ctrl-C."""
    settings = _load(config)
    _logging(settings)
    from replicator.app import build_sync

    _run(lambda: build_sync(settings, once=once))


def _run(build: Callable[[], Service]) -> None:
    from infra.tuning import tune
    from replicator.service import leave, run_until_signalled

    tune()
    leave(run_until_signalled(build()))


# --- configuration ---------------------------------------------------------------------------------------------------


@config_app.command("check")
def config_check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Read the file and tell every problem. Asks no cluster and no bucket."""
    path = _path(config)
    try:
        settings = _load(config)
    except ConfigError as error:
        if not as_json:
            raise
        _print_json({"ok": False, "source": error.source, "problems": list(error.problems)})
        raise typer.Exit(USAGE) from None
    if as_json:
        _print_json({"ok": True, "source": settings.source, "problems": []})
        return
    parts = [f"region {settings.region}"]
    if settings.egress is not None:
        parts.append(f"egress of {len(settings.egress.topics)} topic rule(s)")
    if settings.ingress is not None:
        parts.append(f"ingress of {len(settings.ingress.sources)} source(s)")
    if settings.sync is not None:
        parts.append(f"sync to {settings.sync.destination.bucket}")
    _print(f"{path}: no problems; {', '.join(parts)}")


@config_app.command("show")
def config_show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the whole configuration as understood: defaults included, secrets masked."""
    from replicator.config.show import to_tables, to_toml

    tables = to_tables(_load(config))
    if as_json:
        _print_json(tables)
    else:
        _print(to_toml(tables), end="")


@config_app.command("schema")
def config_schema(as_json: AsJson = False) -> None:
    """Print every setting with its type, default and meaning."""
    from replicator.config.schema import entries, template

    if as_json:
        _print_json([asdict(entry) for entry in entries()])
    else:
        _print(template(), end="")


@explain_app.command("topic")
def explain_topic(
    name: Annotated[str, typer.Argument(metavar="NAME")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Say whether a topic is archived here and delivered here, and by which rule."""
    from replicator.config.explain import explain_topic as explain

    answers = explain(_load(config), name)
    if as_json:
        _print_json([asdict(answer) for answer in answers])
        return
    for answer in answers:
        _print(answer.text)
    if not answers:
        _print("the configuration has neither [egress] nor [ingress]")


# --- local stack -----------------------------------------------------------------------------------------------------


@local_app.command("up")
def local_up(
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running; end it with `local down`.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the stack; without --detach it ends with Ctrl-C."""
    import signal
    import threading

    from infra.local.stack import LocalStack
    from infra.local.state import run_foreground, up_detached

    if detach:
        state = up_detached()
        if as_json:
            _print_json(state.to_json())
        else:
            _print(_addresses(state.brokers, state.endpoint_url) + "\nend it with: replicator local down")
        return

    def ready(stack: LocalStack) -> None:
        brokers = {region: broker.bootstrap for region, broker in stack.brokers.items()}
        if as_json:
            _print_json({"brokers": brokers, "endpoint_url": stack.moto.endpoint_url})
        else:
            _print(_addresses(brokers, stack.moto.endpoint_url) + "\nend it with Ctrl-C")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends it in a terminal ends it everywhere
    try:
        run_foreground(on_ready=ready, stop=threading.Event())
    except KeyboardInterrupt:
        _print("ended")


@local_app.command("status")
def local_status(as_json: AsJson = False) -> None:
    """Say whether the detached stack runs. Exit code 1 when it does not, or not all of it."""
    from infra.local.state import status

    found = status()
    if as_json:
        facts = {} if found is None else {"alive": dict(found.alive), **found.state.to_json()}
        _print_json({"up": found is not None and found.up, **facts})
    elif found is None:
        _print("no detached stack; start one with: replicator local up --detach")
    else:
        _print(_addresses(found.state.brokers, found.state.endpoint_url))
        for process, alive in found.alive.items():
            _print(f"{process}: {'runs' if alive else 'ended'}")
    if found is None or not found.up:
        raise typer.Exit(FAILED)


@local_app.command("down")
def local_down(as_json: AsJson = False) -> None:
    """End the detached stack; no error when there is none."""
    from infra.local.state import down

    ended = down()
    if as_json:
        _print_json({"ended": None if ended is None else ended.to_json()})
    else:
        _print("there was no detached stack" if ended is None else "ended")


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running for a look around.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replicate real flights between two embedded regions, and prove that nothing was lost."""
    from rich.console import Console

    from infra.local.demo import run

    raise typer.Exit(run(keep=keep, console=Console(), json=as_json))


# --- helpers ---------------------------------------------------------------------------------------------------------


def _path(given: Path | None) -> Path:
    return given or Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def _load(given: Path | None) -> Config:
    from replicator.config import load

    return load(_path(given))


def _logging(settings: Config) -> None:
    from infra.logs import configure

    configure(settings.log.level, settings.log.format)


def _addresses(brokers: Mapping[str, str], endpoint_url: str) -> str:
    lines = [f"Kafka of region {region}: {bootstrap}" for region, bootstrap in brokers.items()]
    return "\n".join([*lines, f"S3 and SQS: {endpoint_url}"])


def _print(text: str, *, end: str = "\n") -> None:
    typer.echo(text + end, nl=False)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def _say(text: str) -> None:
    typer.echo(f"replicator: {text}", err=True)
