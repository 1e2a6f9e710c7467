"""Looks at an archive, in this process or as tasks of Spark: a partition each, and only what was found comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from formats.int_range import IntRange
from formats.segment import Segment, SourcePartition, parse_source
from infra.runtime.progress import Progress
from replicator.config import Config
from replicator.selection import Selection
from replicator.services.wiring import for_workers
from replicator.verify.proven import Proven, decode_proven, encode_proven, proven_by_source
from replicator.verify.report import entry_of
from replicator.verify.verify import Verification, copied_as

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings

ARCHIVE, SOURCE, TARGET, DIRECT = "archive", "source", "target", "direct"


Found = tuple[Mapping[str, Any], Mapping[Segment, Proven]]  # the entry of a partition, and what was proven for it


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyScope:
    """At what; and beside which cluster, unless it is the archive alone. `beside`: of DIRECT, the source's."""

    kind: str
    cluster: Config | None = None
    beside: Config | None = None
    read_again_after: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.kind == ARCHIVE) != (self.cluster is None):
            raise ValueError(f"{self.kind}: {ARCHIVE} has no cluster, all others need one")
        if (self.kind == DIRECT) != (self.beside is not None):
            raise ValueError(f"{self.kind}: two clusters are for {DIRECT}, which needs them")

    def sources(self, verification: Verification) -> Sequence[SourcePartition]:
        """What is looked at. Raises as `Verification.sources` does."""
        return verification.all_sources() if self.kind == ARCHIVE else verification.sources()

    def at(
        self,
        verification: Verification,
        source: SourcePartition,
        proven: Mapping[Segment, Proven],
        delivered: IntRange | None = None,
    ) -> Found:
        """`delivered`: offsets that a TARGET was given by a restore of the selection; None: those that are selected,
        delivered by whoever."""
        if self.cluster is None:
            verdict = verification.archived_whole(source, proven, self.read_again_after)
            return entry_of(verdict), verdict.read
        if self.kind == SOURCE:
            return entry_of(verification.same_as_source(source, self.cluster)), {}
        selection = verification.selection
        is_restored = delivered is not None
        topic = selection.renaming(source.topic) if is_restored else copied_as(selection, source, self.cluster)
        if self.beside is not None:
            direct = verification.source_as_target(source, self.beside, self.cluster, topic)
            return {**entry_of(direct), "kind": DIRECT}, {}
        return entry_of(verification.same_as_target(source, self.cluster, topic, offsets=delivered)), {}


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """What a worker of Spark does with a row. It is pickled, credentials written in the configurations with it."""

    config: Config
    selection: Selection
    look: VerifyScope

    def __call__(self, row: str) -> str:
        said = json.loads(row)
        with Verification(self.config, self.selection) as verification:
            source, delivered = parse_source(said["source"]), said["delivered"]
            entry, read = self.look.at(
                verification, source, decode_proven(said["proven"]), None if delivered is None else IntRange(*delivered)
            )
        return json.dumps({"entry": entry, "proven": encode_proven(read)})


def here(
    config: Config, selection: Selection, look: VerifyScope, proven: Mapping[Segment, Proven], told: Progress
) -> Iterator[Found]:
    """The same in this process, partition by partition as they are done."""
    by_source = proven_by_source(proven)
    with Verification(config, selection) as verification:
        sources = look.sources(verification)
        yield from verification.each(lambda s: look.at(verification, s, by_source.get(s, {})), told, of=sources)


def on_spark(
    settings: SparkSettings,
    work: VerifyTask,
    proven: Mapping[Segment, Proven],
    told: Progress,
    *,
    delivered: Mapping[SourcePartition, IntRange] | None = None,
) -> Iterator[Found]:
    """`delivered`: only these partitions, and of each the offsets that a TARGET was given; None: all that is selected.
    Raises ConfigError, PlanFailed, SparkUnavailable, and what `told` raises, which ends the run."""
    if delivered is None:
        with Verification(work.config, work.selection) as verification:
            spans: Mapping[SourcePartition, IntRange | None] = dict.fromkeys(work.look.sources(verification))
    else:
        spans = delivered
    by_source = proven_by_source(proven)
    rows = [_row(source, by_source.get(source, {}), span) for source, span in spans.items()]
    plain = replace(work, config=for_workers(work.config))
    from infra.spark.runner import SparkRunner  # noqa: PLC0415 -- 30 MB that a look without Spark does not pay for

    with SparkRunner(settings) as runner:
        answers = runner.run(rows, plain, progress=told)
    for answer in map(json.loads, answers):
        yield answer["entry"], decode_proven(answer["proven"])


def _row(source: SourcePartition, proven: Mapping[Segment, Proven], delivered: IntRange | None) -> str:
    offsets = None if delivered is None else [delivered.low, delivered.high]
    return json.dumps({"source": str(source), "proven": encode_proven(proven), "delivered": offsets})
