"""Topics of a source that are to be delivered here, and of which the archive has nothing: no listing shows them, its
watermarks do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from formats.errors import PluginFailed
from formats.incarnation import Incarnation
from formats.topic_selection import is_internal
from infra.archive.source_reports import SourceReport
from infra.settings.current import InForce
from ingress.groups.topic_ids import is_another
from ingress.settings import IngressSettings


def destination_of(
    settings: IngressSettings, own_topics: Collection[str], here: str, region: str, incarnation: Incarnation
) -> str:
    """Of an incarnation of which nothing has arrived; empty when it is not to be delivered here. `here`: this
    region."""
    topic = incarnation.topic
    try:
        source = settings.source_of(region, topic)
        if source is None or is_internal(topic, own_topics) or source.refusal(topic, here):
            return ""
        return source.destination(topic, incarnation.id)
    except PluginFailed:  # the refresh of the routing table reports it
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsNotArrived:
    """Safe to use from any thread."""

    settings: InForce[IngressSettings]
    own_topics: Collection[str]
    here: str  # this region

    def find(
        self,
        reports: Mapping[str, SourceReport],
        known: Collection[tuple[str, Incarnation]],
        topic_ids: Mapping[tuple[str, str], str | None],
    ) -> Mapping[tuple[str, str], int]:
        """How many offsets their logs have, by region and topic. `known`: region and incarnation of what is archived or
        in a catalogue; `topic_ids`: claimed ones, of some of these by region and archive path. A topic that was created
        again has not arrived until something of it does."""
        paths: dict[tuple[str, str], list[str]] = {}
        for region, incarnation in known:
            paths.setdefault((region, incarnation.topic), []).append(incarnation.path)
        found: dict[tuple[str, str], int] = {}
        for region, report in reports.items():
            for topic, marks in ({} if report.watermarks is None else report.watermarks.topics).items():
                some = paths.get((region, topic), ())
                arrives = any(not is_another(topic_ids.get((region, path)), marks.topic_id) for path in some)
                if (count := sum(marks.counts)) and not arrives and self._is_expected(region, topic):
                    found[region, topic] = count
        return found

    def _is_expected(self, region: str, topic: str) -> bool:
        settings = self.settings.value
        is_found = settings.finds_new_topics or any(
            source.region == region and not source.topic.is_expression and source.topic.matches(topic)
            for source in settings.sources
        )
        return is_found and bool(destination_of(settings, self.own_topics, self.here, region, Incarnation(topic)))
