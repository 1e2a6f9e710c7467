"""Topics of a source that are to be delivered here, and of which the archive has nothing: no listing shows them, its
watermarks do."""

from __future__ import annotations

from collections.abc import Collection

from formats.errors import PluginFailed
from formats.incarnation import Incarnation
from formats.topic_selection import is_internal
from ingress.settings import IngressSettings


def destination_of(
    settings: IngressSettings, own_topics: Collection[str], here: str, region: str, incarnation: Incarnation
) -> str:
    """Of an incarnation of which nothing has arrived; empty when it is not to be delivered here. `here`: this
    region."""
    source = settings.source_of(region, incarnation.topic)
    if source is None or is_internal(incarnation.topic, own_topics):
        return ""
    try:
        return "" if source.refusal(incarnation.topic, here) else source.destination(incarnation.topic, incarnation.id)
    except PluginFailed:
        return ""
