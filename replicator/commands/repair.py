"""`replicator skip` and `replicator release`: repair of a parked partition."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replicator.terminal.changes import Written, print_changes
from replicator.terminal.output import AsJson, ConfigFile, Yes, load_config, print_json, print_text

if TYPE_CHECKING:
    from ingress.repair import CheckpointRepair
    from replicator.services.clients import Clients

Where = Annotated[
    str, typer.Argument(metavar="REGION/TOPIC/PARTITION", help="The source partition, as `status` names it.")
]
To = Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Destination topic; default: by the file.")]


def skip(
    source: Where,
    offset: Annotated[int, typer.Argument(min=0, help="The offset at which the partition is parked.")],
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, kept with the recorded gap.")],
    through: Annotated[
        int | None,
        typer.Option("--through", metavar="N", min=0, help="Also skip the offsets up to this one (inclusive)."),
    ] = None,
    to: To = None,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give up a record that cannot be delivered.

    Records the offset as skipped and moves the position behind it. Only for a partition that is parked at exactly this
    offset; or for offsets that arrived when delivery had begun behind them, or had changed to the topic's next
    incarnation: these are recorded as skipped, and the position stays.
    """
    from formats.messages.delivery_checkpoint import (
        encode,
        encode_key,
        encode_parked_key,
        encode_skipped,
        encode_skipped_key,
    )
    from formats.segment import OffsetRange
    from infra.runtime.lifecycle import SystemClock
    from replicator.services.clients import Clients
    from replicator.terminal.source_names import key_of, one_partition

    if not reason.strip():
        raise typer.BadParameter("give the reason: --reason TEXT")
    if through is not None and through < offset:
        raise typer.BadParameter(f"--through {through} lies before {offset}")
    settings = load_config(config)
    partition = one_partition(source)
    with Clients(settings) as reach:
        operator = operator_of(reach)
        key = key_of(reach.ingress, partition, to)
        offsets = OffsetRange(offset, offset if through is None else through)
        plan = operator.plan_skip(key, offsets, reason, SystemClock().now())
        holds = operator.skip(plan) if yes else plan.after
    written = [Written(key=encode_skipped_key(plan.skipped), value=encode_skipped(plan.skipped))]
    what = f"{partition} to {key.destination_topic}: {offsets}"
    if plan.after is None:
        changes = [f"{what} given up; they had arrived too late to be delivered"]
    else:
        changes = [f"{what} skipped, next is {offsets.next_offset}"]
        written += [
            Written(key=encode_key(key), value=encode(plan.after)),
            Written(key=encode_parked_key(key), value=None),
        ]
    if holds is not None and holds != plan.after and plan.after is not None:
        changes.append(f"its owner continues at {holds.next_offset}, and may have delivered it")
    print_changes(changes, written, topic=reach.ingress.checkpoint_topic, done=yes, as_json=as_json)


def release(source: Where, to: To = None, config: ConfigFile = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Mark the cause of a parked partition as gone.

    The partition is no longer shown as parked, and its owner retries by itself. If delivery fails again, it is parked
    again. Refused for a partition without a position: `checkpoints seed` sets one.
    """
    from formats.messages.delivery_checkpoint import encode_parked_key
    from replicator.services.clients import Clients
    from replicator.terminal.source_names import is_delivered, key_of, one_partition

    settings = load_config(config)
    partition = one_partition(source)
    with Clients(settings) as reach:
        operator = operator_of(reach)
        key = key_of(reach.ingress, partition, to)
        parked = operator.plan_release(key, delivered=is_delivered(reach.ingress, key))
        if parked is not None and yes:
            operator.release(key)
    if parked is None:
        what = f"{partition} to {key.destination_topic} is not parked"
        print_json({"written": False, "changes": [what], "records": []}) if as_json else print_text(what)
        return
    what = f"{partition} to {key.destination_topic} released; it was parked: {parked.reason}"
    written = [Written(key=encode_parked_key(key), value=None)]
    print_changes([what], written, topic=reach.ingress.checkpoint_topic, done=yes, as_json=as_json)


def operator_of(reach: Clients) -> CheckpointRepair:
    from ingress.repair import CheckpointRepair

    return CheckpointRepair(
        checkpoints=reach.checkpoints,
        open_editor=lambda: reach.editor,
        topic=reach.ingress.checkpoint_topic,
        admin=reach.admin,
        groups=reach.groups,
        group_id=reach.ingress.group_id,
        claim=reach.claim,
        store=reach.store,
        control=reach.control,
    )
