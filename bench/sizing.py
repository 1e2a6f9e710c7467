"""Prints what a deployment asks of S3, SQS, Kafka and processors, what is full first, and what it costs a month.

    python -m bench.sizing --partitions 100000 --topics 5000 --mb-per-second 10000

The arithmetic is `bench.deployment`'s. Every option is an input of it; the output is text for a terminal and for
`docs/scale.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from bench.deployment import Deployment
from egress.settings import EgressTopicSettings

AGES = (1, 10, 60, 300, 1_800)  # seconds: rows of the table of segment ages


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options().parse_args(arguments)
    deployment = Deployment(
        partitions=options.partitions,
        topics=options.topics,
        bytes_per_second=options.mb_per_second * 1e6,
        record_bytes=options.record_bytes,
        skew=options.skew,
        stored_ratio=options.stored_ratio,
        retention_days=options.retention_days,
        processes=options.processes,
        cpu_seconds_per_million=options.cpu_seconds_per_million,
        relist=timedelta(seconds=options.relist_seconds),
        topic_settings=EgressTopicSettings(max_segment_age=timedelta(seconds=options.segment_age_seconds)),
    )
    print("\n".join(text(deployment)))


def text(deployment: Deployment) -> Iterator[str]:
    yield from _table(
        ("what", "a second", "each"),
        [
            ("records", _number(deployment.records_per_second), f"{deployment.record_bytes:,} B"),
            ("raw bytes", _bytes(deployment.bytes_per_second), ""),
            ("segments of level 0", _number(deployment.segments_per_second), _bytes(deployment.segment_bytes)),
            ("PUT of segments", _number(deployment.puts_per_second), ""),
            ("GET of ingress", _number(deployment.gets_per_second), ""),
            ("LIST of ingress' timer", _number(deployment.lists_per_second), ""),
            ("requests of SQS", _number(deployment.queue_requests_per_second), ""),
            ("catalogue, at a change", "", _bytes(deployment.catalog_bytes)),
            ("watermarks, every 30 s", "", _bytes(deployment.watermark_bytes)),
        ],
    )
    yield ""
    loads = sorted(deployment.loads().items(), key=lambda row: -row[1][0] / row[1][1])
    yield from _table(
        ("full first", "used", "limit", "share", "what changes it"),
        [(name, _number(used), _number(limit), f"{used / limit:.2f}", remedy) for name, (used, limit, remedy) in loads],
    )
    yield ""
    costs = deployment.costs()
    rows = [(name, f"{dollars:,.0f}") for name, dollars in (*costs.items(), ("together", sum(costs.values())))]
    yield from _table(("US dollars a month", ""), rows)
    yield ""
    yield from _table(
        ("max_segment_age", "segments a second", "stored bytes each", "PUT, US dollars a month"),
        [_age_row(deployment, seconds) for seconds in AGES],
    )


def _age_row(deployment: Deployment, seconds: int) -> tuple[str, ...]:
    rule = replace(deployment.topic_settings, max_segment_age=timedelta(seconds=seconds))
    other = replace(deployment, topic_settings=rule)
    written = other.costs()["segments written"]
    return f"{seconds:,} s", _number(other.segments_per_second), _bytes(other.segment_bytes), f"{written:,.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Of Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:,.2f}"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f} B"


def _options() -> argparse.ArgumentParser:
    default = Deployment()
    parser = argparse.ArgumentParser(prog="python -m bench.sizing", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--partitions", type=int, default=default.partitions)
    add("--topics", type=int, default=default.topics)
    add("--mb-per-second", type=float, default=default.bytes_per_second / 1e6, help="raw, of all partitions")
    add("--record-bytes", type=int, default=default.record_bytes)
    add("--skew", type=float, default=default.skew, help="partition n has a share of 1/n^SKEW")
    add("--stored-ratio", type=float, default=default.stored_ratio, help="raw bytes for each stored byte")
    add("--retention-days", type=float, default=default.retention_days)
    add("--processes", type=int, default=default.processes, help="of egress, and of ingress, with 2 cores each")
    add("--cpu-seconds-per-million", type=float, default=default.cpu_seconds_per_million, help="docs/performance.md")
    add("--relist-seconds", type=float, default=default.relist.total_seconds())
    add("--segment-age-seconds", type=float, default=default.topic_settings.max_segment_age.total_seconds())
    return parser


if __name__ == "__main__":
    main()
