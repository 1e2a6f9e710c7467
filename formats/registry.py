"""The interface of a segment format, and the registry of formats by name.

Another package adds a format by an entry point in the group `replicator.formats`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from formats.errors import ConfigError
from formats.footer import SegmentFooter, SegmentOrigin
from formats.segment import Segment

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class SegmentWriter(Protocol):
    """Writes one segment. Not thread safe; different writers may be used on different threads at once."""

    def write(self, batches: Sequence[RecordBatch]) -> None:
        """Append records; their offsets follow those written before. One call makes one row group, or several if the
        records exceed the format's limit."""

    def close(self, segment: Segment, origin: SegmentOrigin) -> SegmentFooter:
        """Write the footer; the sink then holds the whole segment and stays open. Raises ValueError when the records
        written lie outside `segment.offsets`. A segment without a record is legal."""

    def abort(self) -> None:
        """Stop writing; the sink's content is unusable. May be called at any time, more than once."""


class SegmentReader(Protocol):
    """An open segment whose footer matches its key. Not thread safe."""

    @property
    def footer(self) -> SegmentFooter: ...

    def batches(self, from_offset: int = 0) -> Iterator[RecordBatch]:
        """Records from `from_offset` on, in offset order. Each batch is checked against the footer's digests before it
        is yielded: what comes out is what went in. Raises CorruptSegment; bounded memory (about one row group)."""

    def close(self) -> None:
        """Release the reader's resources; closes the source file, too."""


class SegmentFormat(Protocol):
    """Encoding of segments. Selected by name through the entry-point group `replicator.formats`; instances are
    immutable and thread safe, and take keyword arguments that all have defaults."""

    @property
    def name(self) -> str: ...

    def create(self, sink: BinaryIO) -> SegmentWriter:
        """`sink` is written from its current position, forward only."""

    def open(self, source: BinaryIO, segment: Segment) -> SegmentReader:
        """`source` is seekable; the reader owns it, also when this raises. Raises CorruptSegment when the object is
        damaged, truncated, foreign, newer than this program, or when its footer is not `segment`'s."""


GROUP = "replicator.formats"
OURS = EntryPoint(name="parquet", value="formats.parquet.writer:ParquetFormat", group=GROUP)
"""The format of this package: not searched for in all packages that are installed."""


def load(
    name: str, options: Mapping[str, object] | None = None, *, known: Iterable[EntryPoint] | None = None
) -> SegmentFormat:
    """The format `name`, built with `options` as keyword arguments. Raises ConfigError with every problem.

    `known` defaults to the installed entry points.
    """
    given = dict(options or {})
    points = {point.name: point for point in (_installed(name) if known is None else known)}
    if name not in points:
        raise ConfigError([f"no format {name!r}; installed: {', '.join(sorted(points)) or 'none'}"], source="format")
    try:
        make = points[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"{points[name].value} does not load: {error}"], source=f"format {name!r}") from error
    allowed = [p for p in inspect.signature(make).parameters if p != "name"]
    unknown = [f"no option {option!r}; there are: {', '.join(allowed)}" for option in given if option not in allowed]
    if unknown:
        raise ConfigError(unknown, source=f"format {name!r}")
    try:
        return cast(SegmentFormat, make(**given))
    except (TypeError, ValueError) as error:
        raise ConfigError([str(error)], source=f"format {name!r}") from error


def _installed(name: str) -> Iterable[EntryPoint]:
    return [OURS] if name == OURS.name else entry_points(group=GROUP)
