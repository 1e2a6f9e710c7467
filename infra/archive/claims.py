"""Claims of archive paths: which incarnation of a topic a path belongs to; see `formats.incarnation`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from formats.control.claim import TopicClaim, decode_topic_claim, encode_topic_claim
from formats.control.keys import claim_key, claims_prefix
from formats.errors import MalformedKey, SegmentExists, SegmentNotFound
from formats.incarnation import Incarnation, later_paths, parse_incarnation
from formats.segment import region_prefix
from infra.archive.control_objects import naming, read_object
from infra.contracts.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class ClaimStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    def of(self, region: str, path: str) -> TopicClaim | None:
        """The claim of an archive path; None when, and only when, it is not claimed."""
        try:
            return self._at(claim_key(self.prefix, region, path))
        except SegmentNotFound:
            return None

    def record(self, region: str, path: str, claim: TopicClaim) -> TopicClaim:
        """Claim a path. Returns the claim that holds: `claim`, or the one that was there before."""
        key, data = claim_key(self.prefix, region, path), encode_topic_claim(claim)
        try:
            self.objects.put_new(key, io.BytesIO(data), len(data))
        except SegmentExists:
            return self._at(key)
        return claim

    def _at(self, key: str) -> TopicClaim:
        with naming(key):
            return decode_topic_claim(read_object(self.objects, key))

    def paths(self, region: str) -> Sequence[str]:
        """Every claimed archive path, by one listing."""
        prefix = claims_prefix(self.prefix, region)
        return [item.key[len(prefix) :] for item in self.objects.list(prefix)]

    def incarnations(self, region: str) -> Sequence[Incarnation]:
        """Every incarnation whose path is claimed, by one listing; foreign keys are left out."""
        return _incarnations(self.paths(region))

    def later_ids(self, region: str, topic: str) -> Sequence[str]:
        """Ids of the incarnations of `topic` except the one with the plain path, by one listing; foreign keys are left
        out."""
        folder = claims_prefix(self.prefix, region)
        listed = self.objects.list(claim_key(self.prefix, region, later_paths(topic)))
        return [one.id for one in _incarnations(item.key[len(folder) :] for item in listed)]

    def has_objects(self, region: str, path: str) -> bool:
        """Whether any object is stored under an archive path, claimed or not, by one request."""
        prefix = f"{region_prefix(self.prefix, region)}{path}/"
        return next(iter(self.objects.list(prefix)), None) is not None


def _incarnations(paths: Iterable[str]) -> Sequence[Incarnation]:
    found: list[Incarnation] = []
    for path in paths:
        with contextlib.suppress(MalformedKey):
            found.append(parse_incarnation(path))
    return found
