"""`replicator gaps`: list and accept offsets missing at the source and at the destination."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from formats.errors import TargetError
from replicator.terminal.interrupt import WRITES_ONCE, interruptible
from replicator.terminal.output import DIFFERENCES, AsJson, ConfigFile, Yes, load_config, print_json, print_text

if TYPE_CHECKING:
    from formats.control.gap import RecordedGap
    from formats.messages.delivery_checkpoint import Skipped
    from formats.segment import OffsetRange, SourcePartition
    from replicator.services.clients import Clients

Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="List only what was recorded then or later.")
]

gaps_app = typer.Typer(
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@gaps_app.callback()
@interruptible()
def gaps(context: typer.Context, config: ConfigFile = None, as_json: AsJson = False, since: Since = None) -> None:
    """List or accept offsets that are missing.

    Lists gaps at the source, what retention removed, and offsets skipped at the destination. Exit code 3 when anything
    was lost, 0 when not: what retention removed was to go, and what an operator accepted is known. With --since, what
    was recorded before is known, too, and not listed.
    """
    from replicator.services.clients import Clients
    from replicator.terminal.source_names import instant

    if context.invoked_subcommand is not None:
        return
    first = None if since is None else instant(since)
    settings = load_config(config)
    regions = {settings.region} if settings.egress is not None else set()
    if settings.retention is not None:
        regions.add(settings.retention.region or settings.region)
    if settings.ingress is not None:
        regions.update(settings.ingress.regions)
    with Clients(settings) as reach:
        sources = [s for found in reach.pool.map(reach.control.gaps.sources, sorted(regions)) for s in found]
        recorded = [gap for found in reach.pool.map(reach.control.gaps.of, sources) for gap in found]
        archived = _archived(reach, recorded)
        skipped: Sequence[Skipped] = ()
        if settings.ingress is not None:
            reach.checkpoints.read()
            skipped = reach.checkpoints.skipped()
    if first is not None:
        recorded = [gap for gap in recorded if gap.recorded_at >= first]
        skipped = [one for one in skipped if one.at >= first]
    if as_json:
        print_json(
            {
                "source": [{**_gap_json(gap), "archived_since": gap in archived} for gap in recorded],
                "destination": [_skipped_json(s) for s in skipped],
            }
        )
    else:
        for gap in recorded:
            print_text(_gap_text(gap) + (", and archived since" if gap in archived else ""))
        for one in skipped:
            print_text(
                f"{one.key.source} {one.offsets}: {_offsets(one.offsets)} skipped on "
                f"the way to {one.key.destination_topic} ({one.reason}), {one.at.isoformat(timespec='seconds')}"
            )
        if not recorded and not skipped:
            print_text("no gaps are recorded" if since is None else f"no gaps are recorded since {since}")
    if any(gap.is_loss and gap not in archived for gap in recorded) or skipped:
        raise typer.Exit(DIFFERENCES)


@gaps_app.command(short_help="Accept archived or missing offsets as lost.")
@interruptible(WRITES_ONCE)
def accept(
    source: Annotated[
        str, typer.Argument(metavar="REGION/TOPIC/PARTITION", help="The source partition, as `status` names it.")
    ],
    offsets: Annotated[str, typer.Argument(metavar="A-B", help="The offsets, both included.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="The reason, kept with the recorded gap.")],
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept that offsets will never be in the archive.

    Offsets that a fork of the source's log contests, a recorded gap that is a loss, or a gap between segments. After a
    fork egress continues behind them in the same archive path; readers skip a gap that no segment covers.
    """
    from formats.control.gap import encode_gap
    from replicator.services.clients import Clients
    from replicator.terminal.source_names import of_another_region, offset_range, one_partition

    if not reason.strip():
        raise typer.BadParameter("give the reason: --reason TEXT")
    settings = load_config(config)
    partition, wanted = one_partition(source), offset_range(offsets)
    if partition.region != settings.region:
        raise TargetError(
            f"{of_another_region(str(partition), partition.region, settings.region)}; replication or sync brings the "
            "record here"
        )
    with Clients(settings) as reach:
        plan = _plan(reach, partition, wanted, reason)
        if plan is not None and yes:
            reach.require_conditional_writes()
            _record(reach, plan.gap)
    done = "accepted" if yes else "would be accepted"
    what = f"{partition} {wanted}: {_offsets(wanted)} {done} as missing"
    if plan is None:
        what, written = f"{partition} {wanted} is accepted already", {}
    else:
        written = {plan.key: json.loads(encode_gap(plan.gap))}
    if as_json:
        print_json({"written": yes and plan is not None, "changes": [what], "objects": written})
        return
    print_text(what)
    for name, value in written.items():
        print_text(f"{'written' if yes else 'would be written'} to s3://{settings.s3.bucket}/{name}:")
        print_text(f"  {json.dumps(value, sort_keys=True)}")
    if written and not yes:
        print_text("nothing was written; to write it, add --yes")


class _Acceptance(NamedTuple):
    key: str
    gap: RecordedGap


def _plan(reach: Clients, source: SourcePartition, wanted: OffsetRange, reason: str) -> _Acceptance | None:
    """The gap to record; None if it was accepted before. Raises TargetError for offsets that are not missing."""
    from formats.control.gap import RecordedGap
    from formats.control.keys import accepted_gap_key, gap_key
    from formats.gap_acceptance import acceptable
    from infra.archive.forward_listing import covered
    from infra.runtime.lifecycle import SystemClock

    recorded = reach.control.gaps.of(source)
    stored = covered(reach.store, source)
    forks, begin = reach.control.forks.of(source), reach.control.begins.of(source)
    if not (recorded or stored.runs or forks or begin):
        raise TargetError(_not_archived(reach, source))
    if any(gap.is_accepted and gap.offsets == wanted for gap in recorded):
        return None
    choices = acceptable(forks, recorded, stored, begin)
    if wanted not in choices:
        named = " or ".join(f"{o.start}-{o.end}" for o in choices)
        raise TargetError(
            f"{source}: {wanted.start}-{wanted.end} is neither contested by a fork nor a gap of the archive; "
            + (f"what can be accepted is {named}" if named else "nothing of it is")
        )
    gap = RecordedGap(
        source=source,
        offsets=wanted,
        reason=reason,
        low=stored.start or 0,
        high=stored.next_offset or 0,
        recorded_at=SystemClock().now(),
        is_accepted=True,
    )
    key = accepted_gap_key if any(one.offsets == wanted for one in recorded) else gap_key
    return _Acceptance(key(reach.control.prefix, source, wanted), gap)


def _not_archived(reach: Clients, source: SourcePartition) -> str:
    where = f"the archive of region {source.region}"
    if found := reach.store.partitions(source.region, source.path):
        return f"{where} has no partition {source.partition} of {source.path}: the last one is {found[-1]}"
    return f"there is no topic {source.path} in {where}"


def _record(reach: Clients, gap: RecordedGap) -> None:
    from infra.runtime.crash_points import Step, durable

    with durable(Step.RECORD_GAP):
        reach.control.gaps.record(gap)
    stored_gap = next((g for g in reach.control.gaps.of(gap.source) if g.offsets == gap.offsets), None)
    if stored_gap is None or not stored_gap.is_accepted:
        raise TargetError(f"{gap.source} {gap.offsets} was just recorded for another reason: run it again")


def _archived(reach: Clients, recorded: Sequence[RecordedGap]) -> Sequence[RecordedGap]:
    """Those recorded as a loss that segments cover by now: they were archived later, or put back."""
    from formats.gap_acceptance import losses
    from infra.archive.forward_listing import covered

    lost = [gap for gap in recorded if gap.is_loss]
    sources = sorted({gap.source for gap in lost})
    stored = dict(zip(sources, reach.pool.map(lambda one: covered(reach.store, one), sources), strict=True))
    return [gap for gap in lost if not losses([gap], (), stored[gap.source])]


def _gap_text(gap: RecordedGap) -> str:
    what = f"lost at the source ({gap.reason})" if gap.is_loss else "removed by retention"
    if gap.is_accepted:
        what = f"accepted as missing ({gap.reason})"
    whose = "log" if gap.is_loss else "archive"
    return (
        f"{gap.source} {gap.offsets}: {_offsets(gap.offsets)} {what}, recorded "
        f"{gap.recorded_at.isoformat(timespec='seconds')} when the {whose} held {gap.low} to {gap.high}"
    )


def _offsets(offsets: OffsetRange) -> str:
    return "1 offset" if offsets.count == 1 else f"{offsets.count:,} offsets"


def _gap_json(gap: RecordedGap) -> dict[str, object]:
    return {
        "source": str(gap.source),
        "start": gap.offsets.start,
        "end": gap.offsets.end,
        "reason": gap.reason,
        "is_loss": gap.is_loss,
        "is_accepted": gap.is_accepted,
        "low": gap.low,
        "high": gap.high,
        "recorded_at": gap.recorded_at.isoformat(),
    }


def _skipped_json(skipped: Skipped) -> dict[str, object]:
    return {
        "source": str(skipped.key.source),
        "destination": skipped.key.destination_topic,
        "start": skipped.offsets.start,
        "end": skipped.offsets.end,
        "reason": skipped.reason,
        "at": skipped.at.isoformat(),
    }
