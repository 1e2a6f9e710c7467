"""`replicator plan`: what ingress would change in this cluster so that its topics are as the source's are."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from replicator.terminal.output import (
    DIFFERENCES,
    AsJson,
    ConfigFile,
    load_config,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    from replicator.services.planning import IngressPlan


def plan(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show what ingress would change in this cluster.

    Compares the destinations with the catalogues of the source regions, and changes nothing. Exit code 3 when something
    cannot be compared or changed.
    """
    from replicator.services.clients import Clients

    settings = load_config(config)
    from replicator.services.planning import planned
    from replicator.services.routing import routed

    with Clients(settings) as reach:
        found = planned(reach, routed(reach))
    if as_json:
        print_json(
            {
                "changes": list(found.changes),
                "left": list(found.plan.reports),
                "problems": dict(found.problems),
                "catalogs": {region: at.isoformat() for region, at in found.observed_at.items()},
            }
        )
    else:
        _print(found)
    if found.problems:
        raise typer.Exit(DIFFERENCES)


def _print(found: IngressPlan) -> None:
    for region, at in found.observed_at.items():
        print_text(f"catalogue of {region}, as observed at {at.isoformat(timespec='seconds')}")
    for region in found.without_catalog:
        print_text(f"catalogue of {region}: none has arrived; its topics are created as their segments say")
    for text in found.changes:
        print_text(f"  {text}")
    for text in found.plan.reports:
        print_text(f"left as it is: {text}")
    for subject, why in found.problems.items():
        print_text(f"! {subject}: {why}")
    if not found.changes:
        print_text("nothing to change")
