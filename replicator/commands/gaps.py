"""`replicator gaps`: what is known to be missing, at the source and at the destination."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from replicator.checkpoint import Skipped
from replicator.commands.reach import Reach
from replicator.commands.terminal import DIFFERENCES, AsJson, ConfigFile, load_config, print_json, print_text
from replicator.control import RecordedGap


def gaps(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List what is missing and written down: gaps at the source, what retention removed, and offsets skipped at the
    destination.

    Exit code 3 when anything was lost, 0 when not: what retention removed was to go.
    """
    settings = load_config(config)
    regions = {settings.region} if settings.egress is not None else set()
    if settings.retention is not None:
        regions.add(settings.retention.region or settings.region)
    if settings.ingress is not None:
        regions |= {source.region for source in settings.ingress.sources}
    with Reach(settings) as reach:
        sources = [s for found in reach.pool.map(reach.control.gap_sources, sorted(regions)) for s in found]
        recorded = [gap for found in reach.pool.map(reach.control.gaps, sources) for gap in found]
        skipped: Sequence[Skipped] = ()
        if settings.ingress is not None:
            reach.checkpoints.read()
            skipped = reach.checkpoints.skipped()
    if as_json:
        print_json({"source": [_gap_json(g) for g in recorded], "destination": [_skipped_json(s) for s in skipped]})
    else:
        for gap in recorded:
            print_text(_gap_text(gap))
        for one in skipped:
            print_text(
                f"{one.key.source} {one.offsets}: {_offsets(one.offsets.next_offset - one.offsets.start)} skipped on "
                f"the way to {one.key.destination_topic} ({one.reason}), {one.at.isoformat(timespec='seconds')}"
            )
        if not recorded and not skipped:
            print_text("no gaps are recorded")
    if any(gap.is_loss for gap in recorded) or skipped:
        raise typer.Exit(DIFFERENCES)


def _gap_text(gap: RecordedGap) -> str:
    what = f"lost at the source ({gap.reason})" if gap.is_loss else "removed by retention"
    whose = "log" if gap.is_loss else "archive"
    return (
        f"{gap.source} {gap.offsets}: {_offsets(gap.offsets.next_offset - gap.offsets.start)} {what}, recorded "
        f"{gap.recorded_at.isoformat(timespec='seconds')} when the {whose} held {gap.low} to {gap.high}"
    )


def _offsets(count: int) -> str:
    return "1 offset" if count == 1 else f"{count} offsets"


def _gap_json(gap: RecordedGap) -> dict[str, object]:
    return {
        "source": str(gap.source),
        "start": gap.offsets.start,
        "end": gap.offsets.end,
        "reason": gap.reason,
        "is_loss": gap.is_loss,
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
