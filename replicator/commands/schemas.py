"""`replicator schemas …`: the schemas of a source region, as they are in the bucket, and back into a registry."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from formats.errors import ConfigError
from replicator.terminal.options import Region
from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    complain,
    group,
    load_config,
    print_json,
    print_text,
    set_up_work,
    table,
)

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.schema_plan import SchemaPlan
    from replicator.schemas import ArchivedSchemas

schemas_app = group("Show and restore the schemas that records refer to.")


@schemas_app.command("show")
def schemas_show(config: ConfigFile = None, region: Region = None, as_json: AsJson = False) -> None:
    """Show the schemas of a region, as its egress copied them into the bucket."""
    found = _archived(load_config(config), region)
    snapshot = found.snapshot
    if as_json:
        versions = [
            {"subject": one.subject, "version": one.version, "id": one.id, "deleted": one.is_deleted}
            for one in snapshot.versions
        ]
        print_json(
            {
                "generation": found.number,
                "observed_at": snapshot.observed_at.isoformat(),
                "compatibility": snapshot.compatibility or None,
                "subject_compatibility": dict(snapshot.subject_compatibility),
                "versions": versions,
                "problems": dict(snapshot.problems),
            }
        )
        return
    _print_head(found)
    rows = [
        (one.subject, one.version, one.id, snapshot.schemas[one.id].type, "yes" if one.is_deleted else "")
        for one in snapshot.versions
    ]
    print_text(table(("subject", "version", "id", "type", "deleted"), rows))


@schemas_app.command("restore")
def schemas_restore(
    config: ConfigFile = None,
    region: Region = None,
    yes: Annotated[bool, typer.Option("--yes", help="Register what the plan names.")] = False,
    as_json: AsJson = False,
) -> None:
    """Register the schemas of a region in this region's registry, with the same ids.

    Prints the plan; registers nothing without --yes, or while there is a conflict. Exit code 3 while there is one, or
    while the archive's copy is not whole. A run that was ended goes on with the same command.
    """
    from infra.kafka.cluster.schema_registry import schema_registry
    from infra.runtime.lifecycle import SystemClock
    from replicator.schemas import SchemaRestore

    settings = load_config(config)
    if settings.schema_registry is None:
        raise ConfigError(["schema_registry: missing: the registry to restore into"], source=settings.source)
    found = _archived(settings, region)
    restore = SchemaRestore(registry=schema_registry(settings.schema_registry), source=found.snapshot)
    plan = restore.plan(SystemClock().now())
    is_done = yes and not plan.conflicts
    if not as_json:
        _print_head(found)
        _print_plan(plan)
    if is_done:
        restore.run(plan)
    if as_json:
        print_json(
            {
                "generation": found.number,
                "problem": found.problem or None,
                "problems": dict(found.snapshot.problems),
                "register": [{"subject": o.subject, "version": o.version, "id": o.id} for o in plan.register],
                "delete": [{"subject": o.subject, "version": o.version} for o in plan.delete],
                "compatibility": plan.compatibility or None,
                "subject_compatibility": dict(plan.subject_compatibility),
                "present": plan.present,
                "left": list(plan.left),
                "conflicts": list(plan.conflicts),
                "done": is_done,
            }
        )
    elif is_done:
        print_text("done")
    elif not plan.conflicts and not plan.is_empty:
        print_text("nothing is registered without --yes")
    if plan.conflicts or found.problem or found.snapshot.problems:
        raise typer.Exit(DIFFERENCES)


def _archived(settings: Config, region: str | None) -> ArchivedSchemas:
    from replicator.schemas import archived_schemas
    from replicator.services.clients import Clients

    set_up_work(settings)
    with Clients(settings) as reach:
        return archived_schemas(reach.objects, settings.s3.prefix, region or settings.region)


def _print_head(found: ArchivedSchemas) -> None:
    at = found.snapshot.observed_at.isoformat(timespec="seconds")
    subjects, versions = len(found.snapshot.subjects), len(found.snapshot.versions)
    print_text(f"generation {found.number}, as observed at {at}: {subjects} subjects, {versions} versions")
    for what, why in found.snapshot.problems.items():
        complain(f"not observed: {what}: {why}")
    if found.problem:
        complain(found.problem)


def _print_plan(plan: SchemaPlan) -> None:
    for one in plan.register:
        print_text(f"  register {one.subject} version {one.version} with id {one.id}")
    for one in plan.delete:
        print_text(f"  soft-delete {one.subject} version {one.version}, as it was")
    for subject, level in sorted(plan.subject_compatibility.items()):
        print_text(f"  compatibility of {subject}: {level}")
    if plan.compatibility:
        print_text(f"  compatibility of the registry: {plan.compatibility}")
    for text in plan.left:
        print_text(f"left as it is: {text}")
    for text in plan.conflicts:
        print_text(f"! {text}")
    print_text(f"{plan.present} versions are there already" if plan.present or plan.is_empty else "none is there yet")
