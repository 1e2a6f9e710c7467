"""`replicator local …` and `replicator demo`: the embedded stack."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from replicator.terminal.output import FAILED, AsJson, complain, group, print_json, print_text

local_app = group("Run two Kafka brokers, S3 and SQS on this machine.")

NO_STACK = "no detached stack; start one with: replicator local up --detach"


@local_app.command("up")
def local_up(
    detach: Annotated[bool, typer.Option("--detach", help="Leave the stack running; `local down` ends it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the stack; without --detach it ends with Ctrl-C."""
    import signal
    import threading

    from infra.local.aws import bucket_of, create_bucket_with_queue, queue_of
    from infra.local.detached import run_foreground, up_detached
    from infra.local.stack import LocalStack

    def prepare(stack: LocalStack) -> None:
        for region in stack.brokers:
            create_bucket_with_queue(stack.moto.endpoint_url, bucket_of(region), queue_of(region))

    if detach:
        state = up_detached(prepare=prepare)
        if as_json:
            print_json(state.to_json())
        else:
            print_text(_addresses(state.brokers, state.endpoint_url))
            print_text('its variables: eval "$(replicator local env)"\nend it with: replicator local down')
        return

    def ready(stack: LocalStack) -> None:
        prepare(stack)
        brokers = {region: broker.bootstrap for region, broker in stack.brokers.items()}
        if as_json:
            print_json({"brokers": brokers, "endpoint_url": stack.moto.endpoint_url})
        else:
            print_text(_addresses(brokers, stack.moto.endpoint_url) + "\nend it with Ctrl-C")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends it as Ctrl-C does
    try:
        run_foreground(on_ready=ready, stop=threading.Event())
    except KeyboardInterrupt:
        print_text("ended")


@local_app.command("status")
def local_status(as_json: AsJson = False) -> None:
    """Show whether the detached stack runs. Exit code 1 when it does not, or not all of it."""
    from infra.local.detached import status

    found = status()
    if as_json:
        facts = {} if found is None else {"alive": dict(found.alive), **found.state.to_json()}
        print_json({"up": found is not None and found.up, **facts})
    elif found is None:
        print_text(NO_STACK)
    else:
        print_text(_addresses(found.state.brokers, found.state.endpoint_url))
        for process, alive in found.alive.items():
            print_text(f"{process}: {'runs' if alive else 'ended'}")
    if found is None or not found.up:
        raise typer.Exit(FAILED)


@local_app.command("env")
def local_env(as_json: AsJson = False) -> None:
    """Print the variables of the detached stack: `eval "$(replicator local env)"` sets them.

    Brokers by region (KAFKA_A, KAFKA_B), and what AWS's clients read. Exit code 1 when there is no detached stack.
    """
    import shlex

    from infra.local.aws import AWS_VARIABLES, direct_hosts
    from infra.local.detached import status

    found = status()
    if found is None or not found.up:
        complain(NO_STACK if found is None else "not all of the stack runs: replicator local status")
        raise typer.Exit(FAILED)
    variables = {f"KAFKA_{name.upper().replace('-', '_')}": broker for name, broker in found.state.brokers.items()}
    direct = direct_hosts()
    variables |= {"AWS_ENDPOINT_URL": found.state.endpoint_url, **AWS_VARIABLES, "NO_PROXY": direct, "no_proxy": direct}
    if as_json:
        print_json(variables)
    else:
        print_text("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


@local_app.command("down")
def local_down(as_json: AsJson = False) -> None:
    """End the detached stack; no error when there is none."""
    from infra.local.detached import down

    ended = down()
    if as_json:
        print_json({"ended": None if ended is None else ended.to_json()})
    else:
        print_text("there was no detached stack" if ended is None else "ended")


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running at the end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replicate real flights between two regions on this machine.

    Compares source, archive and target in the end, and restores a lost region from its bucket.
    """
    from rich.console import Console

    from replicator.demo import run

    raise typer.Exit(run(keep=keep, console=Console(), json=as_json))


def _addresses(brokers: Mapping[str, str], endpoint_url: str) -> str:
    from infra.local.aws import bucket_of, queue_of

    lines = [f"Kafka of region {region}: {bootstrap}" for region, bootstrap in brokers.items()]
    buckets = [
        f"bucket of region {one}: {bucket_of(one)}, with its notifications in {queue_of(one)}" for one in brokers
    ]
    return "\n".join([*lines, f"S3 and SQS: {endpoint_url}", *buckets])
