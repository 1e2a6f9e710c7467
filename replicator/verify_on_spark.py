"""Looks at an archive, in this process or as tasks of Spark: a partition each, and only what was found comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ingress.report import entry_of
from ingress.selection import Selection
from ingress.verification import Proven
from replicator.config import Config
from replicator.segment import Segment, SourcePartition, parse_source
from replicator.surroundings import for_workers
from replicator.verify import Told, Verification, decode_proven, encode_proven, proven_by_source

if TYPE_CHECKING:
    from infra.spark import SparkSettings

ARCHIVE, SOURCE, TARGET, DIRECT = "archive", "source", "target", "direct"


Found = tuple[Mapping[str, Any], Mapping[Segment, Proven]]  # the entry of a partition, and what was proven for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
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

    def at(self, verification: Verification, source: SourcePartition, proven: Mapping[Segment, Proven]) -> Found:
        if self.cluster is None:
            verdict = verification.archived_whole(source, proven, self.read_again_after)
            return entry_of(verdict), verdict.read
        if self.beside is not None:
            direct = verification.source_as_target(source, self.beside, self.cluster)
            return {**entry_of(direct), "kind": DIRECT}, {}
        beside = verification.same_as_source if self.kind == SOURCE else verification.same_as_target
        return entry_of(beside(source, self.cluster)), {}


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker of Spark does with a row. It is pickled, credentials written in the configurations with it."""

    config: Config
    selection: Selection
    look: Look

    def __call__(self, row: str) -> str:
        said = json.loads(row)
        with Verification(self.config, self.selection) as verification:
            entry, read = self.look.at(verification, parse_source(said["source"]), decode_proven(said["proven"]))
        return json.dumps({"entry": entry, "proven": encode_proven(read)})


def here(
    config: Config, selection: Selection, look: Look, proven: Mapping[Segment, Proven], told: Told
) -> Iterator[Found]:
    """The same in this process, partition by partition as they are done."""
    by_source = proven_by_source(proven)
    with Verification(config, selection) as verification:
        yield from verification.each(lambda s: look.at(verification, s, by_source.get(s, {})), told)


def on_spark(settings: SparkSettings, work: Work, proven: Mapping[Segment, Proven], told: Told) -> Iterator[Found]:
    """Raises ConfigError, PlanFailed, SparkUnavailable."""
    with Verification(work.config, work.selection) as verification:
        sources = verification.sources()
    by_source = proven_by_source(proven)
    rows = [json.dumps({"source": str(s), "proven": encode_proven(by_source.get(s, {}))}) for s in sources]
    plain = replace(work, config=for_workers(work.config))
    from infra.spark import SparkRunner  # noqa: PLC0415 -- 30 MB that a look without Spark does not pay for

    with SparkRunner(settings) as runner:
        answers = runner.run(rows, plain, progress=told)
    for answer in map(json.loads, answers):
        yield answer["entry"], decode_proven(answer["proven"])
