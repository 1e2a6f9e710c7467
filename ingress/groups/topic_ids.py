"""Which incarnation of a topic an archive path has, by its claim: offsets of a group belong to one incarnation."""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.control.claim import UNREADABLE
from formats.errors import OF_ONE_OBJECT
from infra.archive.control import ControlStore


@dataclass(slots=True)
class ClaimedTopicIds:
    """Safe to use from several threads. Claims never change, so each is read once."""

    control: ControlStore
    _known: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, region: str, path: str) -> str | None:
        """The topic id; None while the path is not claimed, as in an archive of the ancestor's. Raises
        StoreUnavailable."""
        if (region, path) in self._known:
            return self._known[region, path]
        try:
            claim = self.control.claims.of(region, path)
        except OF_ONE_OBJECT:
            return UNREADABLE
        if claim is not None:
            self._known[region, path] = claim.topic_id
        return None if claim is None else claim.topic_id


def is_another(claimed: str | None, reported: str) -> bool:
    """Whether a topic was created again since its archive path was claimed, as far as both ids are known."""
    return claimed not in {None, "", UNREADABLE} and reported not in {"", claimed}
