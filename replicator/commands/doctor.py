"""`replicator doctor`: checks a deployment end to end, and says what to fix."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.commands.config import loaded_files
from replicator.terminal.output import (
    DIFFERENCES,
    FAILED,
    AsJson,
    ConfigFile,
    config_path,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.doctor.findings import Diagnosis
    from replicator.rights.table import CommandRole

THREADS = 48  # as many as there are questions about a region: one that hangs delays no other
FILES = "files"  # the group of findings about the files themselves


def doctor(  # noqa: PLR0917
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Several files are also checked against each other."),
    ] = None,
    config: ConfigFile = None,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="Whose rights to check; default: the services of the file."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out what writes: probe objects, and a transactional id.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Print what is well, too, a line for each check.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a deployment end to end, and say what to fix.

    Brokers, rights, topics, bucket, lifecycle and replication rules, notifications, queue, clock and versions, with the
    credentials of the file. Exit code 3 when there is an error, 1 when there is none but something could not be
    checked.
    """
    from replicator.config.across import between_files
    from replicator.doctor.program_checks import of_files
    from replicator.services.command_logs import set_up_logs

    if files and config is not None:
        raise typer.BadParameter("--config names one file: give all of them as arguments")
    set_up_logs(None)  # warnings; a region's own [log] is of its services
    paths = list(dict.fromkeys(files or [config_path(config)]))
    chosen = _roles(roles or ())
    found, refused, places = loaded_files(paths)
    problems = [(error.source, problem) for error in refused for problem in error.problems]
    groups: dict[str, Sequence[Diagnosis]] = {}
    if about_files := of_files(problems, between_files(found, places)):
        groups[FILES] = about_files
    with ThreadPoolExecutor(len(found) or 1, "region") as regions:
        all_of_them = list(regions.map(lambda one: _examined(one, chosen, writes=not read_only), found))
    groups |= {f"{one.source}, region {one.region}": all_of for one, all_of in zip(found, all_of_them, strict=True)}
    if as_json:
        print_json([{"about": about, **asdict(one)} for about, all_of in groups.items() for one in all_of])
    else:
        print_text("\n".join(_lines(groups, with_ok=all_)))
    severities = {one.severity.value for all_of in groups.values() for one in all_of}
    if "error" in severities:
        raise typer.Exit(DIFFERENCES)
    if "unknown" in severities:
        raise typer.Exit(FAILED)


def _roles(names: Sequence[str]) -> Sequence[CommandRole]:
    from replicator.rights.table import ROLES

    known = {role.name: role for role in ROLES}
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"there is no role {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _examined(config: Config, roles: Sequence[CommandRole], *, writes: bool) -> Sequence[Diagnosis]:
    from infra.runtime.lifecycle import SystemClock
    from replicator.doctor.catalogue import CHECKS
    from replicator.doctor.findings import examine
    from replicator.doctor.gather import gather, roles_of

    pool = ThreadPoolExecutor(THREADS, "doctor")
    try:
        with ExitStack() as opened:
            facts = gather(config, roles or roles_of(config), pool, SystemClock(), opened, writes=writes)
            return examine(CHECKS, facts)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # each request has a time limit of its own


def _lines(groups: dict[str, Sequence[Diagnosis]], *, with_ok: bool) -> Iterator[str]:
    for n, (about, findings) in enumerate(groups.items()):
        if n:
            yield ""
        yield about
        for one in findings:
            if one.severity == "ok":
                if with_ok:
                    yield f"  ok       {one.where}: {one.what}"
                continue
            yield f"  {one.severity:<8} {one.where}: {one.what}  [{one.name}]"
            if one.why:
                yield f"           why: {one.why}"
            if one.remedy:
                yield f"           do:  {one.remedy}"
        counts = {name: sum(one.severity == name for one in findings) for name in ("error", "warning", "unknown", "ok")}
        yield (
            f"  {_count(counts['error'], 'error')}, {_count(counts['warning'], 'warning')}, {counts['unknown']} not "
            f"checked, {counts['ok']} ok"
        )


def _count(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
