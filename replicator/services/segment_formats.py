"""The format of new segments of a topic: that of the configuration, with the topic's own compression level."""

from __future__ import annotations

from dataclasses import dataclass, field

from egress.settings import EgressTopicSettings
from formats.registry import SegmentFormat, load
from replicator.config import Config


@dataclass(frozen=True, slots=True)
class SegmentFormats:
    """Use from one thread. `configured`: that of `config`, without a topic's settings."""

    config: Config
    configured: SegmentFormat
    _by_level: dict[int, SegmentFormat] = field(default_factory=dict)

    def of(self, settings: EgressTopicSettings | None) -> SegmentFormat:
        """`settings`: None for a topic that is not selected any more."""
        level = None if settings is None else settings.compression_level
        if level is None:
            return self.configured
        if level not in self._by_level:
            options = {**self.config.format_options, "compression_level": level}
            self._by_level[level] = load(self.config.format, options)
        return self._by_level[level]
