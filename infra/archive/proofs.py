"""When partitions of an archive were last proven, by `verify`: where `status` finds it.

    {prefix}/{region}/_control/v1/proven/{archive's region}/{place}/{number:020d}

`region` is that of the file that `verify` was given, which owns its prefix; the archive may be a copy of another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from formats.codec import VERSION, dump, load, malformed
from formats.control.keys import control_prefix
from formats.incarnation import parse_incarnation
from formats.segment import SourcePartition
from infra.archive.snapshots import Numbered
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Of one partition: every object was what its key and footer say, and nothing was missing up to `next_offset`; or
    not (`is_whole`)."""

    at: datetime  # UTC, when it was found
    next_offset: int  # behind the last one covered then; 0: nothing was stored
    is_whole: bool


@dataclass(frozen=True, slots=True)
class ProofStore:
    """As thread safe as `objects`; raises what it raises, and MalformedEvent for an object that says nothing."""

    objects: ObjectStore
    prefix: str
    region: str  # whose prefix is written

    def record(self, found: Mapping[SourcePartition, Proof]) -> None:
        """Those of other partitions stay; of one partition the later holds."""
        for (region, place), proofs in _by_place(found).items():

            def change(before: bytes | None, proofs: Mapping[int, Proof] = proofs) -> bytes:
                known = {} if before is None else dict(decode(before))
                later = {p: one for p, one in proofs.items() if p not in known or known[p].at <= one.at}
                return encode({**known, **later})

            with durable(Step.RECORD_PROOF):
                Numbered(self.objects, self._prefix(region, place)).replace(change)

    def proofs(self, region: str, place: str) -> Mapping[int, Proof]:
        """By partition."""
        data = Numbered(self.objects, self._prefix(region, place)).latest()
        return {} if data is None else decode(data)

    def places(self, region: str) -> frozenset[str]:
        """Of which anything was proven, by one listing."""
        folder = f"{proven_prefix(self.prefix, self.region)}{region}/"
        return frozenset(item.key[len(folder) :].partition("/")[0] for item in self.objects.list(folder))

    def _prefix(self, region: str, place: str) -> str:
        return f"{proven_prefix(self.prefix, self.region)}{region}/{place}/"


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
    return Proof(at=datetime.fromisoformat(one["at"]), next_offset=int(one["next_offset"]), is_whole=bool(one["whole"]))


def _by_place(found: Mapping[SourcePartition, Proof]) -> Mapping[tuple[str, str], Mapping[int, Proof]]:
    places: dict[tuple[str, str], dict[int, Proof]] = {}
    for source, proof in found.items():
        places.setdefault((source.region, source.path), {})[source.partition] = proof
    return places


def read(store: ProofStore, places: Iterable[tuple[str, str]], pool: Executor) -> Mapping[SourcePartition, Proof]:
    """Of every partition of these places, (region, place) each, that was ever proven."""
    wanted = set(places)
    regions = sorted({region for region, _ in wanted})
    known = zip(regions, pool.map(store.places, regions), strict=True)
    proven = sorted((region, place) for region, all_ in known for place in all_ if (region, place) in wanted)
    found: dict[SourcePartition, Proof] = {}
    for (region, place), proofs in zip(proven, pool.map(lambda where: store.proofs(*where), proven), strict=True):
        incarnation = parse_incarnation(place)
        found |= {SourcePartition.of(region, incarnation, p): one for p, one in proofs.items()}
    return found
