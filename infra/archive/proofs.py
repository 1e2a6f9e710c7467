"""When `verify` last proved the partitions of an archive; read by `status`.

    {prefix}/{region}/_control/v1/proven/{archive's region}/{path}/{number:020d}

`region` is that of the configuration file given to `verify`, which owns the prefix; the archive may be a copy of
another region's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from formats.codec import VERSION, dump, load, malformed, parse_time
from formats.control.keys import control_prefix
from formats.control.lease import SKEW
from formats.errors import MalformedEvent
from formats.incarnation import parse_incarnation
from formats.segment import SourcePartition
from infra.archive.snapshots import Numbered
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of one partition. `is_whole`: every object matched its key and footer, and no offset was missing up to
    `next_offset`."""

    at: datetime  # UTC, time of the verification
    next_offset: int  # after the last offset covered then; 0: nothing was stored
    is_whole: bool


@dataclass(frozen=True, slots=True)
class ProofStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str
    region: str  # the region below whose prefix this writes

    def record(self, found: Mapping[SourcePartition, Proof], now: datetime) -> None:
        """Merge `found` into the stored proofs; the later proof of a partition wins. One of a time after `now`, the end
        of this verification, is of a clock that was ahead: it would hide what is found until then."""
        for (region, path), proofs in _by_path(found).items():

            def change(before: bytes | None, proofs: Mapping[int, Proof] = proofs) -> bytes:
                known = {} if before is None else dict(decode(before))
                later = {
                    p: one for p, one in proofs.items() if p not in known or not one.at < known[p].at <= now + SKEW
                }
                return encode({**known, **later})

            with durable(Step.RECORD_PROOF):
                Numbered(self.objects, self._prefix(region, path)).replace(change)

    def proofs(self, region: str, path: str) -> Mapping[int, Proof]:
        """Proofs of one archive path, by partition."""
        return Numbered(self.objects, self._prefix(region, path)).decoded(decode) or {}

    def paths(self, region: str) -> frozenset[str]:
        """Archive paths with any proof, by one listing."""
        folder = f"{proven_prefix(self.prefix, self.region)}{region}/"
        return frozenset(item.key[len(folder) :].partition("/")[0] for item in self.objects.list(folder))

    def _prefix(self, region: str, path: str) -> str:
        return f"{proven_prefix(self.prefix, self.region)}{region}/{path}/"


def proven_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}proven/"


def encode(proofs: Mapping[int, Proof]) -> bytes:
    partitions = {
        str(partition): {"at": one.at.isoformat(), "next_offset": one.next_offset, "whole": one.is_whole}
        for partition, one in proofs.items()
    }
    return dump({"partitions": partitions, "v": VERSION})


def decode(data: bytes) -> Mapping[int, Proof]:
    """Raises MalformedEvent, also for a newer version."""
    with malformed("proofs of partitions", data):
        return {int(partition): _decoded(one) for partition, one in load(data)["partitions"].items()}


def _decoded(one: Mapping[str, Any]) -> Proof:
    return Proof(at=parse_time(one["at"]), next_offset=int(one["next_offset"]), is_whole=bool(one["whole"]))


def _by_path(found: Mapping[SourcePartition, Proof]) -> Mapping[tuple[str, str], Mapping[int, Proof]]:
    paths: dict[tuple[str, str], dict[int, Proof]] = {}
    for source, proof in found.items():
        paths.setdefault((source.region, source.path), {})[source.partition] = proof
    return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProofs:
    proofs: Mapping[SourcePartition, Proof]
    problems: tuple[str, ...] = ()  # of each archive path whose proofs cannot be decoded: they are unknown


def read_each(store: ProofStore, paths: Iterable[tuple[str, str]], pool: Executor) -> KnownProofs:
    """Proofs of all partitions of these archive paths, each given as (region, path). Raises StoreUnavailable."""
    wanted = set(paths)
    regions = sorted({region for region, _ in wanted})
    known = zip(regions, pool.map(store.paths, regions), strict=True)
    proven = sorted((region, path) for region, all_ in known for path in all_ if (region, path) in wanted)
    found: dict[SourcePartition, Proof] = {}
    problems: list[str] = []
    for (region, path), one in zip(proven, pool.map(lambda where: _read(store, *where), proven), strict=True):
        if isinstance(one, MalformedEvent):
            what = "delete that object, and run `replicator verify` again"
            problems.append(f"when {region}/{path} was last verified is not known: {one}; {what}")
            continue
        incarnation = parse_incarnation(path)
        found |= {SourcePartition.of(region, incarnation, p): proof for p, proof in one.items()}
    return KnownProofs(proofs=found, problems=tuple(problems))


def _read(store: ProofStore, region: str, path: str) -> Mapping[int, Proof] | MalformedEvent:
    try:
        return store.proofs(region, path)
    except MalformedEvent as error:
        return error
