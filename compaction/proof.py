"""Digests of offset ranges of a stored segment: the proof required before every delete.

The digest of a range is computed from decoded records, and compared with the digest in another segment's footer for the
same range. Equal digests prove equal records, all of them and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from formats.footer import Digest
from formats.records.digest import Digester
from formats.records.statistics import edges, within
from formats.segment import OffsetRange


def digests_of(batches: Iterable[pa.RecordBatch], ranges: Sequence[OffsetRange]) -> list[Digest]:
    """One digest for each of `ranges`, which may overlap, in one pass over `batches` in offset order."""
    digesters = [Digester() for _ in ranges]
    waiting = sorted(range(len(ranges)), key=lambda i: ranges[i].start, reverse=True)
    active: list[int] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        first, last = edges(batch)
        while waiting and ranges[waiting[-1]].start <= last:
            active.append(waiting.pop())
        active = [i for i in active if ranges[i].end >= first]
        for i in active:
            part = within(batch, ranges[i])
            if part.num_rows:
                digesters[i].update(part)
            del part
        del batch  # free the row group before the next one is read
    return [digester.digest() for digester in digesters]
