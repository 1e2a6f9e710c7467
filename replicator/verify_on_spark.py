"""Looks at an archive, in this process or as tasks of Spark: a partition each, and only what was found comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from infra.spark import SparkRunner, SparkSettings
from ingress.report import entry_of
from ingress.selection import Selection
from ingress.verification import ArchiveVerdict, Proven
from replicator.config import Config
from replicator.segment import Segment, SourcePartition, parse_key
from replicator.verify import Told, Verification, decode_proven, encode_proven, proven_by_source

ARCHIVE, SOURCE, TARGET = "archive", "source", "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """At what, and beside which cluster."""

    kind: str
    cluster: Config | None = None
    read_again_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker of Spark does with a row. It is pickled, credentials written in the configurations with it."""

    config: Config
    selection: Selection
    look: Look

    def __call__(self, row: str) -> str:
        said = json.loads(row)
        source = source_of(said["source"])
        with Verification(self.config, self.selection) as verification:
            match self.look:
                case Look(kind="source", cluster=cluster) if cluster is not None:
                    return json.dumps({"entry": entry_of(verification.same_as_source(source, cluster)), "proven": {}})
                case Look(kind="target", cluster=cluster) if cluster is not None:
                    return json.dumps({"entry": entry_of(verification.same_as_target(source, cluster)), "proven": {}})
                case _:
                    verdict: ArchiveVerdict = verification.archived_whole(
                        source, decode_proven(said["proven"]), self.look.read_again_after
                    )
                    return json.dumps({"entry": entry_of(verdict), "proven": encode_proven(verdict.read)})


def here(
    config: Config, selection: Selection, look: Look, proven: Mapping[Segment, Proven], told: Told
) -> Iterator[tuple[Mapping[str, Any], Mapping[Segment, Proven]]]:
    """The same in this process, partition by partition as they are done."""
    with Verification(config, selection) as verification:
        if look.kind == SOURCE and look.cluster is not None:
            yield from ((entry_of(v), {}) for v in verification.beside_source(look.cluster, told))
        elif look.kind == TARGET and look.cluster is not None:
            yield from ((entry_of(v), {}) for v in verification.beside_target(look.cluster, told))
        else:
            archive = verification.archive(proven, read_again_after=look.read_again_after, told=told)
            yield from ((entry_of(v), v.read) for v in archive)


def on_spark(
    settings: SparkSettings, work: Work, proven: Mapping[Segment, Proven], told: Told
) -> Iterator[tuple[Mapping[str, Any], Mapping[Segment, Proven]]]:
    """The entry of each partition, and what was proven for it. Raises ConfigError, PlanFailed, SparkUnavailable."""
    with Verification(work.config, work.selection) as verification:
        sources = verification.sources()
    by_source = proven_by_source(proven)
    rows = [json.dumps({"source": str(s), "proven": encode_proven(by_source.get(s, {}))}) for s in sources]
    plain = replace(work, config=replace(work.config, egress=None, ingress=None, sqs=None, sync=None))
    with SparkRunner(settings) as runner:
        answers = runner.run(rows, plain, progress=told)
    for answer in map(json.loads, answers):
        yield answer["entry"], decode_proven(answer["proven"])


def source_of(text: str) -> SourcePartition:
    """Inverse of `str`. Raises MalformedKey."""
    return parse_key("", f"{text}/0/{0:020d}-{0:020d}").source
