"""The benchmark's records: similar to real ones, and the same in every run.

Kinds: `json`, a 1 kB JSON document with a key and two headers, which zstd compresses by a factor of three to five;
`small`, a value of 100 bytes; `large`, a hundred such documents as one value; `random`, 1 kB that no codec compresses;
`flights`, the records of the demo, real ones of some 300 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

RecordKind = Literal["json", "small", "large", "random", "flights"]
KINDS: tuple[RecordKind, ...] = ("json", "small")  # of `make bench`
RecordHeaders = list[tuple[str, str | bytes | None]] | None

POOL = 49_999  # different records before they repeat: far beyond a codec's window; a prime, so that every partition
# gets all of them
LARGE_POOL = 499  # of the kind `large`
RUN = 10_000  # consecutive records of one partition, as ingress produces them
FIRST_TIMESTAMP_MS = 1_750_000_000_000
JSON_BYTES, SMALL_BYTES = 1024, 100

_CITIES = ("Lisbon", "Rotterdam", "Gdansk", "Trieste", "Valencia", "Antwerp", "Piraeus", "Hamburg", "Marseille", "Cork")
_CHANNELS = (
    ("temperature", 71.0),
    ("pressure", 4.2),
    ("vibration", 0.03),
    ("flow", 118.0),
    ("current", 9.5),
    ("load", 64.0),
)
_KINDS = ("pump", "compressor", "turbine", "valve", "boiler", "conveyor")
_QUALITIES = ("good", "good", "uncertain")
_WORDS = (
    "bearing temperature above the seasonal mean",
    "vibration within limits after the last service",
    "filter replaced, flow is back to nominal",
    "operator confirmed the reading by hand",
    "sensor recalibrated, drift corrected",
    "pressure dropped during the change of shift",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRecords:
    """One list per argument of `produce`."""

    values: list[bytes]
    keys: list[bytes | None]
    headers: list[RecordHeaders]
    timestamps_ms: list[int]
    partitions: list[int]

    @property
    def raw_bytes(self) -> int:
        """Keys, values and headers: what the services count."""
        headers = sum(len(name) + len(value or b"") for pairs in self.headers for name, value in pairs or ())
        return sum(map(len, self.values)) + sum(len(key) for key in self.keys if key) + headers


def records(kind: RecordKind, count: int, partitions: int) -> GeneratedRecords:
    """`count` records, the same number for each partition, in runs, which is the fastest order for the client."""
    pool = _pool(kind, count)
    copies = -(-count // len(pool))
    return GeneratedRecords(
        values=([value for _, value, _ in pool] * copies)[:count],
        keys=([key for key, _, _ in pool] * copies)[:count],
        headers=([headers for _, _, headers in pool] * copies)[:count],
        timestamps_ms=list(range(FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + count)),
        partitions=_distributed(count, partitions),
    )


def _pool(kind: RecordKind, count: int) -> list[tuple[bytes | None, bytes, RecordHeaders]]:
    if kind == "flights":
        return _flights(count)
    chance = random.Random(7)
    return [_MAKERS[kind](chance) for _ in range(min(POOL if kind != "large" else LARGE_POOL, count))]


def _distributed(count: int, partitions: int) -> list[int]:
    each = -(-count // partitions)
    rounds = [min(RUN, each - start) for start in range(0, each, RUN)]
    runs = [[partition] * length for length in rounds for partition in range(partitions)]
    return [partition for run in runs for partition in run][:count]


def _json(chance: random.Random) -> tuple[bytes | None, bytes, RecordHeaders]:
    machine = f"{chance.choice(_KINDS)}-{chance.randrange(20_000):05d}"
    trace = f"{chance.getrandbits(128):032x}"
    readings = ",".join(
        f'{{"channel":"{name}","value":{chance.gauss(mean, mean / 9):.3f},'
        f'"quality":"{chance.choice(_QUALITIES)}","at":{FIRST_TIMESTAMP_MS + chance.randrange(10**9)}}}'
        for name, mean in _CHANNELS
    )
    text = (
        f'{{"id":"{trace}","machine":"{machine}","site":{{"city":"{chance.choice(_CITIES)}","hall":{chance.randrange(40)},'
        f'"latitude":{chance.uniform(36, 58):.6f},"longitude":{chance.uniform(-9, 24):.6f}}},'
        f'"firmware":"{chance.randrange(4)}.{chance.randrange(20)}.{chance.randrange(10)}","readings":[{readings}],'
        f'"operator":"u{chance.randrange(900):04d}","batch":"{chance.getrandbits(64):016x}",'
        f'"running":{chance.choice(("true", "false"))},"hours":{chance.randrange(90_000)},'
        f'"note":"{chance.choice(_WORDS)}; {chance.choice(_WORDS)}","checksum":"'
    )
    filler = f"{chance.getrandbits(1024):0256x}"
    value = f'{text}{filler[: max(JSON_BYTES - len(text) - 2, 0)]}"}}'
    return machine.encode(), value.encode(), [("trace-id", trace[:16].encode()), ("content-type", b"application/json")]


def _small(chance: random.Random) -> tuple[bytes | None, bytes, RecordHeaders]:
    text = f"{chance.choice(_KINDS)}-{chance.randrange(20_000):05d} {chance.choice(_WORDS)} {chance.gauss(71, 8):.3f} "
    return None, f"{text}{chance.getrandbits(400):0100x}"[:SMALL_BYTES].encode(), None


def _large(chance: random.Random) -> tuple[bytes | None, bytes, RecordHeaders]:
    key, _, headers = _json(chance)
    return key, b"[" + b",".join(_json(chance)[1] for _ in range(100)) + b"]", headers


def _random(chance: random.Random) -> tuple[bytes | None, bytes, RecordHeaders]:
    return f"{chance.getrandbits(64):016x}".encode(), chance.randbytes(JSON_BYTES), None


def _flights(count: int) -> list[tuple[bytes | None, bytes, RecordHeaders]]:
    from replicator.demo.flights import flights  # noqa: PLC0415 -- of one kind only: it loads Arrow

    rows = flights(count)
    headers = [[(one["key"], one["value"]) for one in row] for row in rows.column("headers").to_pylist()]
    return list(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), headers, strict=True))


_MAKERS: dict[RecordKind, Callable[[random.Random], tuple[bytes | None, bytes, RecordHeaders]]] = {
    "json": _json,
    "small": _small,
    "large": _large,
    "random": _random,
}
