"""Which incarnation of a topic there was at the moment of a cut: the one whose topic id its watermarks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from formats.control.claim import TopicClaim
from formats.control.restore_cut import Cut
from formats.errors import DataError
from infra.archive.control import ControlStore
from ingress.routing.succession import ArchivedIncarnation


@dataclass(slots=True)
class IncarnationsAt:
    """Of a log that forked, the path that was claimed last by then."""

    cut: Cut
    left_out: list[str] = field(default_factory=list)  # topics that are not restored, with the reason

    def partitions(self, topic: str) -> Sequence[int]:
        """Those that the topic had, also when nothing of them is stored."""
        found = self.cut.topics.get(topic)
        return range(0 if found is None else len(found.ends))

    def choose(
        self,
        control: ControlStore,
        region: str,
        topic: str,
        incarnations: Sequence[ArchivedIncarnation],
        is_stored: Callable[[ArchivedIncarnation], bool] = lambda _: True,
    ) -> ArchivedIncarnation | None:
        """None when there was none, which `left_out` says. `is_stored`: whether anything of it is; a fork whose first
        segment would be of a later moment does not hide the path before it. Raises StoreUnavailable."""
        then = self.cut.topics.get(topic)
        if then is None:
            self._leave_out(topic, "it did not exist then, or egress could not see it")
            return None
        claimed = [(one, _claim(control, region, one)) for one in incarnations]
        ours = [pair for pair in claimed if pair[1] is not None and then.topic_id in ("", pair[1].topic_id)]
        ours = ours or [pair for pair in claimed if pair[1] is None]  # an ancestor's archive is not claimed
        if not ours:
            self._leave_out(topic, f"nothing is stored of the incarnation {then.topic_id}, which it was then")
            return None
        ours.sort(key=lambda pair: -1 if pair[1] is None else pair[1].number)
        by_then = [pair for pair in ours if pair[1] is None or pair[1].claimed_at <= self.cut.observed_at] or ours[:1]
        chosen, claim = by_then.pop()
        while by_then and not is_stored(chosen) and self._begins_later(control, region, chosen):
            chosen, claim = by_then.pop()
        return ArchivedIncarnation(incarnation=chosen.incarnation, claim=claim)

    def _begins_later(self, control: ControlStore, region: str, one: ArchivedIncarnation) -> bool:
        """Whether nothing before the cut is of this path."""
        begins = (control.begins.of(one.source(region, number)) for number in self.partitions(one.topic))
        ends = self.cut.topics[one.topic].ends
        return all(
            begin is not None and end is not None and end <= begin.offset
            for begin, end in zip(begins, ends, strict=True)
        )

    def _leave_out(self, topic: str, why: str) -> None:
        self.left_out.append(f"{topic} is left out: {why} (watermarks {self.cut.generation} of {self.cut.region})")


def _claim(control: ControlStore, region: str, one: ArchivedIncarnation) -> TopicClaim | None:
    try:
        return control.claims.of(region, one.path)
    except DataError:  # damaged, or of a newer program
        return None
