"""Whether segments are copied as configured, checked before they are deleted.

An object that S3 replicates has a replication status; one from before the rule never has any, nor has one that no rule
takes. A rule without SseKmsEncryptedObjects takes no object that a KMS key encrypts, and S3 reports no error. Therefore
no status means "may be deleted", but for an encrypted object that only such rules cover: S3 is asked for copies there,
and makes none. Where any rule that covers it takes encrypted objects, it is from before that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from formats.errors import SegmentNotFound
from formats.segment import Segment, format_key
from infra.archive.compare_objects import CopyState, Located, compare
from infra.archive.segments import SegmentStore
from infra.contracts.deployment import ReplicationRule
from infra.contracts.encryption import as_stored, is_of_kms
from infra.contracts.storage import ObjectInfo

ASKED_TOGETHER = 1000

GONE = "it is not stored any more"
_UNFINISHED = {
    "PENDING": "its replication is not complete yet",
    "FAILED": "its replication failed: fix the bucket's replication rule, then replicate it again",
}


def _everything(_: Segment) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCheck:
    """Checks the copy of an archive that S3 replicates, that `replicator sync` copies to `copy`, or that has none."""

    original: SegmentStore
    copy: SegmentStore | None = None
    is_synced: Callable[[Segment], bool] = _everything  # whether `sync` copies the segment
    rules: Callable[[], Sequence[ReplicationRule]] = tuple  # of S3 replication; asked only where a status is missing

    def why_not_ready(self, keeper: Segment) -> str:
        """Why nothing inside `keeper` may be deleted yet; empty: it may. Raises StoreUnavailable."""
        info = self.original.stat(keeper)
        if info is None:
            return GONE
        return self._unfinished(info)

    def missing(self, keeper: Segment, segments: Collection[Segment]) -> Mapping[Segment, str]:
        """The segments that may not be deleted although `keeper` is fit, with the reason: neither the segment nor the
        keeper has an identical copy. Raises StoreUnavailable."""
        if self.copy is None or not segments:
            return {}
        of_keeper = ""
        if self.is_synced(keeper):
            try:
                of_keeper = self._problem_of_copy(keeper)
            except SegmentNotFound:
                of_keeper = f"{keeper} is not stored any more"
            if not of_keeper:
                return {}
        found = {}
        for segment in segments:
            own = self._problem_if_synced(segment)
            if own is None:
                own = of_keeper  # empty: this topic is not copied at all
            elif own and of_keeper:
                own = f"{own}; {of_keeper}"
            if own:
                found[segment] = own
        return found

    def uncopied(self, segment: Segment) -> str:
        """Why `segment` may not expire: it has no identical copy, or was not found any more, which the next listing
        decides. Empty: it may. Raises StoreUnavailable."""
        info = self.original.stat(segment)
        if info is None:
            return GONE
        if unfinished := self._unfinished(info):
            return unfinished
        return self._problem_if_synced(segment) or ""

    def each_uncopied(self, segments: Sequence[Segment], pool: Executor) -> Iterator[str]:
        """`uncopied` of each, in their order, on `pool`; few calls are waiting there at a time."""
        for start in range(0, len(segments), ASKED_TOGETHER):
            yield from pool.map(self.uncopied, segments[start : start + ASKED_TOGETHER])

    def _unfinished(self, info: ObjectInfo) -> str:
        """Why S3 has not replicated the object yet; empty: it has, or is not to."""
        if info.replication or not is_of_kms(info.encryption):
            return _UNFINISHED.get(info.replication, "")
        covering = [rule for rule in self.rules() if info.key.startswith(rule.prefix) and not rule.is_narrower]
        if not covering or any(rule.takes_kms for rule in covering):
            return ""
        return (
            f"S3 does not replicate it to {covering[0].bucket}: a KMS key encrypts it, and the replication rule "
            f"{covering[0].name!r} of the bucket leaves such objects out. Set SseKmsEncryptedObjects of the rule's "
            "SourceSelectionCriteria, and replicate what is stored with S3 Batch Replication"
        )

    def _problem_if_synced(self, segment: Segment) -> str | None:
        """None: sync does not copy it. Empty: its copy is identical."""
        if self.copy is None or not self.is_synced(segment):
            return None
        try:
            return self._problem_of_copy(segment)
        except SegmentNotFound:
            return GONE

    def _problem_of_copy(self, segment: Segment) -> str:
        """Empty: its copy is identical. Raises SegmentNotFound when the segment itself no longer exists."""
        assert self.copy is not None
        found = compare(_located(self.original, segment), _located(self.copy, segment))
        match found.state:
            case CopyState.SAME:
                return ""
            case CopyState.NO_COPY:
                return f"{segment} was not copied by sync yet"
            case CopyState.DIFFERENT:
                return (
                    f"the copy of {segment} is another object: {found.detail}. Find out which one is right (replicator "
                    "verify, with the file of each side), and delete the other"
                )


def _located(store: SegmentStore, segment: Segment) -> Located:
    return Located(as_stored(store.objects), format_key(store.prefix, segment))
