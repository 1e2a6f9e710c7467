"""`replicator egress|ingress|sync`: the services in the foreground."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.commands.terminal import ConfigFile, load_config, set_up_logs

if TYPE_CHECKING:
    from replicator.service import Service


def egress(config: ConfigFile = None) -> None:
    """Archive this region's topics, until SIGTERM or Ctrl-C."""
    settings = load_config(config)
    set_up_logs(settings)
    from replicator.app import build_egress

    _run(lambda: build_egress(settings))


def ingress(config: ConfigFile = None) -> None:
    """Deliver archived topics to this region's cluster, until SIGTERM or Ctrl-C."""
    settings = load_config(config)
    set_up_logs(settings)
    from replicator.app import build_ingress

    _run(lambda: build_ingress(settings))


def sync(
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Copy what is missing now, then end.")] = False,
) -> None:
    """Copy this region's archive to another bucket, until SIGTERM or Ctrl-C."""
    settings = load_config(config)
    set_up_logs(settings)
    from replicator.app import build_sync

    _run(lambda: build_sync(settings, once=once))


def _run(build: Callable[[], Service]) -> None:
    from infra.tuning import tune
    from replicator.service import leave, run_until_signalled

    tune()
    leave(run_until_signalled(build()))
