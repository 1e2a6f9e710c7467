"""Flips bits of a stored segment, one at a time, and reads it. A program of its own: a decoder that crashes on bad
bytes takes its process down, and that must be one finding, not the end of the test run.

    python -m tests.formats.flips FILE KEY FROM_BYTE TO_BYTE SAMPLES     (SAMPLES 0: every bit)
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from formats.errors import CorruptSegment
from formats.parquet.writer import ParquetFormat
from formats.segment import Segment, parse_key
from tests.formats.sample_records import rows_of

SLOW_SECONDS = 5.0
RSS_LIMIT_KIB = 600 << 10


def read(data: bytes, name: Segment) -> tuple[object, object]:
    reader = ParquetFormat().open(BytesIO(data), name)
    try:
        return reader.footer, rows_of(list(reader.batches()))
    finally:
        reader.close()


def positions(first: int, last: int, samples: int) -> Iterator[tuple[int, int]]:
    """Byte and bit, each at most once."""
    bits = range(first * 8, last * 8)
    chosen = random.Random(samples).sample(bits, min(samples, len(bits))) if samples else bits
    return (divmod(bit, 8) for bit in chosen)


def sweep(data: bytes, name: Segment, flips: Iterator[tuple[int, int]]) -> dict[str, object]:
    truth = read(data, name)
    changed = bytearray(data)
    outcomes: Counter[str] = Counter()
    for at, bit in flips:
        changed[at] ^= 1 << bit
        # Printed before, so that the last line names the flip that killed the process.
        print(json.dumps([at, bit]), file=sys.stderr)
        began = time.monotonic()
        try:
            outcomes["same" if read(bytes(changed), name) == truth else "differs"] += 1
        except CorruptSegment:
            outcomes["noticed"] += 1
        except BaseException as error:
            outcomes[f"{at}.{bit}: {error!r}"] += 1
        if time.monotonic() - began > SLOW_SECONDS:
            outcomes[f"{at}.{bit}: slow"] += 1
        changed[at] ^= 1 << bit
    if peak_rss_kib() > RSS_LIMIT_KIB:
        outcomes["huge allocation"] += 1
    return dict(outcomes)


def peak_rss_kib() -> int:
    """This program's own; `ru_maxrss` would count what the process that started it held."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    content = Path(sys.argv[1]).read_bytes()
    begin, end, count = map(int, sys.argv[3:])
    print(json.dumps(sweep(content, parse_key("", sys.argv[2]), positions(begin, end, count))))
