"""`replicator config import-mm2|import-mm1`: MirrorMaker 2's or 1's configuration as a file of several regions."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import ConfigError
from replicator.terminal.output import DIFFERENCES, AsJson, complain, print_json, print_text

if TYPE_CHECKING:
    from replicator.config.mirrormaker_file import ImportedFile

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="FILE|DIR/",
        help="Write this file; into a directory, a file for each region. Default: print.",
    ),
]


def import_mm2(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Of connect-mirror-maker.sh, or of a connector; also its JSON.")
    ],
    flow: Annotated[
        str | None, typer.Option("--flow", metavar="A->B", help="Only this flow; default: each that is enabled.")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print the file for what a MirrorMaker 2 configuration says.

    A file of several regions: its clusters, and each flow that is enabled. What has no counterpart is a comment with
    the reason; exit code 3 when some of it would change what is replicated. No file is overwritten.
    """
    from replicator.config.java_properties import read_properties
    from replicator.config.load import NO_FILE, read
    from replicator.config.mirrormaker import imported_flows
    from replicator.config.mirrormaker_file import imported_file

    try:
        found = imported_flows(read_properties(read(file, advice=f"{NO_FILE}; name a file of MirrorMaker 2")))
    except ValueError as error:
        raise ConfigError([str(error)], source=str(file)) from error
    chosen = [one for one in found if flow in (None, one.name)]
    if not chosen:
        known = ", ".join(one.name for one in found)
        raise typer.BadParameter(f"--flow: {flow} is not enabled in {file}; enabled are: {known}")
    _print_imported(imported_file(chosen), output, as_json=as_json)


def import_mm1(  # noqa: PLR0917 -- options of a command
    consumer: Annotated[
        list[Path], typer.Option("--consumer", "--consumer.config", metavar="FILE", help="Of the source: its consumer.")
    ],
    producer: Annotated[
        Path, typer.Option("--producer", "--producer.config", metavar="FILE", help="Of the target: its producer.")
    ],
    include: Annotated[
        str | None, typer.Option("--whitelist", "--include", metavar="REGEX", help="Topics that cross.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option("--blacklist", "--exclude", metavar="REGEX", help="Topics that do not cross.")
    ] = None,
    num_streams: Annotated[str | None, typer.Option("--num.streams", metavar="N")] = None,
    num_producers: Annotated[str | None, typer.Option("--num.producers", metavar="N")] = None,
    queue_size: Annotated[str | None, typer.Option("--queue.size", metavar="N")] = None,
    abort_on_send_failure: Annotated[str | None, typer.Option("--abort.on.send.failure", metavar="BOOL")] = None,
    offset_commit_interval: Annotated[str | None, typer.Option("--offset.commit.interval.ms", metavar="MS")] = None,
    rebalance_listener: Annotated[str | None, typer.Option("--consumer.rebalance.listener", metavar="CLASS")] = None,
    rebalance_listener_args: Annotated[str | None, typer.Option("--rebalance.listener.args", metavar="ARGS")] = None,
    message_handler: Annotated[str | None, typer.Option("--message.handler", metavar="CLASS")] = None,
    message_handler_args: Annotated[str | None, typer.Option("--message.handler.args", metavar="ARGS")] = None,
    new_consumer: Annotated[bool, typer.Option("--new.consumer")] = False,
    source: Annotated[str, typer.Option("--source", metavar="NAME", help="Name the source's region.")] = "source",
    target: Annotated[str, typer.Option("--target", metavar="NAME", help="Name the target's region.")] = "target",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print the file for what a command line of MirrorMaker 1 says.

    Takes the options of kafka-mirror-maker.sh as they are; --source and --target name the regions. What has no
    counterpart is a comment with the reason; exit code 3 when some of it would change what is replicated.
    """
    from replicator.config.java_properties import read_properties
    from replicator.config.load import NO_FILE, read
    from replicator.config.mirrormaker1 import imported_flow
    from replicator.config.mirrormaker_file import imported_file

    given = {
        "--whitelist": include,
        "--blacklist": exclude,
        "--num.streams": num_streams,
        "--num.producers": num_producers,
        "--queue.size": queue_size,
        "--abort.on.send.failure": abort_on_send_failure,
        "--offset.commit.interval.ms": offset_commit_interval,
        "--consumer.rebalance.listener": rebalance_listener,
        "--rebalance.listener.args": rebalance_listener_args,
        "--message.handler": message_handler,
        "--message.handler.args": message_handler_args,
        "--new.consumer": "true" if new_consumer else None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if len(consumer) > 1:
        raise typer.BadParameter("--consumer: one source is one flow: import each by itself, with another --source")
    found: list[Mapping[str, str]] = []
    for role, path in (("consumer", consumer[0]), ("producer", producer)):
        advice = f"{NO_FILE}; name the {role}'s properties with --{role} FILE"
        try:
            found.append(read_properties(read(path, advice=advice)))
        except ValueError as error:
            raise ConfigError([str(error)], source=str(path)) from error
    consumer_properties, producer_properties = found
    try:
        flow = imported_flow(options, consumer_properties, producer_properties, source=source, target=target)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _print_imported(imported_file([flow], origin="MirrorMaker 1"), output, as_json=as_json)


def _print_imported(file: ImportedFile, output: str | None, *, as_json: bool) -> None:
    if output is not None:
        path = Path(output)
        if path.is_dir() or output.endswith("/"):
            _write_new({path / f"{name}.toml": text for name, text in file.by_region().items()})
        else:
            _write_new({path: file.text})
    if as_json:
        flows = [
            {"source": one.source, "target": one.target, "findings": [asdict(finding) for finding in one.findings]}
            for one in file.flows
        ]
        print_json({"file": file.text, "flows": flows})
    elif output is None:
        print_text(file.text, end="")
    refused = list(dict.fromkeys(finding.text for one in file.flows for finding in one.refused))
    for text in refused:
        complain(text)
    if refused:
        raise typer.Exit(DIFFERENCES)


def _write_new(texts: Mapping[Path, str]) -> None:
    """All of the files, or none of them if one exists. Raises typer.BadParameter."""
    if taken := [str(path) for path in texts if path.exists()]:
        raise typer.BadParameter(f"--output: {', '.join(taken)}: exists; remove it, or name another file")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise typer.BadParameter(f"--output: {path}: {error.strerror or error}") from error
        complain(f"wrote {path}")
