"""Prints what a deployment asks of S3, SQS, Kafka and processors, and what is full first; or what it costs a month.

    python -m bench.sizing --partitions 100000 --topics 5000 --mb-per-second 10000
    python -m bench.sizing --cost --partitions 1000 --source-region us-east-1 --target-region eu-west-1

The arithmetic is `bench.deployment`'s and `bench.costs`'. Every option is an input of it; the output is text for a
terminal, for `docs/scale.md` and for `docs/cost.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from bench.costs import Bill, Choices, alternatives
from bench.deployment import MONTH_SECONDS, Deployment
from bench.prices import CLASSES, STANDARD, UNITS, prices_of
from egress.settings import EgressTopicSettings

DEFAULT_SOURCE, DEFAULT_TARGET = "us-east-1", "eu-west-1"
AGES = (1, 10, 60, 300, 1_800)  # seconds: rows of the table of segment ages


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _options()
    options = parser.parse_args(arguments)
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
    if not options.cost:
        print("\n".join(text(deployment)))
        return
    try:
        bill = _bill(deployment, options)
    except ValueError as error:
        parser.error(str(error))
    print("\n".join(bill_text(bill)))


def _bill(deployment: Deployment, options: argparse.Namespace) -> Bill:
    """Raises ValueError."""
    prices = dict(_price(one) for one in options.price)
    regions = (options.source_region, options.target_region)
    if strange := [name for name in prices if not name.startswith(tuple(f"{region}." for region in regions))]:
        raise ValueError(f"--price {strange[0]}: it begins with a region of the bill, {regions[0]}. or {regions[1]}.")
    choices = Choices(
        compaction=timedelta(hours=options.compaction_hours) if options.compaction_hours else None,
        noncurrent_days=options.noncurrent_days,
        merged_class=options.merged_class,
        time_control=options.time_control,
        kms=options.kms,
    )
    source, target = (prices_of(region, prices) for region in regions)
    return Bill(deployment=deployment, choices=choices, source=source, target=target)


def _price(text: str) -> tuple[str, float]:
    """Raises ValueError."""
    name, _, amount = text.partition("=")
    try:
        return name, float(amount)
    except ValueError:
        raise ValueError(f"--price {text}: REGION.NAME=US-DOLLARS, such as eu-west-1.put.STANDARD=0.0051") from None


def bill_text(bill: Bill) -> Iterator[str]:
    lines = list(bill.lines())
    rows = [(one.where, one.what, _number(one.quantity), one.unit, _dollars(one.dollars)) for one in lines]
    yield from _table(
        ("where", "what", "a month", "of", "US dollars"), [*rows, ("", "together", "", "", _dollars(bill.dollars))]
    )
    yield ""
    yield from _table(
        ("with one thing changed", "US dollars a month"),
        [(name, _dollars(other.dollars)) for name, other in alternatives(bill)],
    )
    yield ""
    names = list(bill.source.amounts)
    yield from _table(
        ("price, US dollars", "for", bill.source.region, bill.target.region),
        [
            (name, UNITS[name.partition(".")[0]], f"{bill.source.amounts[name]:g}", f"{bill.target.amounts[name]:g}")
            for name in names
        ],
    )


def _dollars(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


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
    yield from _table(
        ("max_segment_age", "segments a second", "stored bytes each", "PUT, US dollars a month"),
        [_age_row(deployment, seconds) for seconds in AGES],
    )


def _age_row(deployment: Deployment, seconds: int) -> tuple[str, ...]:
    rule = replace(deployment.topic_settings, max_segment_age=timedelta(seconds=seconds))
    other = replace(deployment, topic_settings=rule)
    written = other.puts_per_second * MONTH_SECONDS * prices_of(DEFAULT_SOURCE, {}).of("put", STANDARD)
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
    cost = parser.add_argument_group("with --cost")
    add = cost.add_argument
    add("--cost", action="store_true", help="print what it costs a month instead")
    add("--source-region", default=DEFAULT_SOURCE, help="whose prices")
    add("--target-region", default=DEFAULT_TARGET)
    add("--price", action="append", default=[], metavar="REGION.NAME=AMOUNT", help="in place of a listed price")
    add("--compaction-hours", type=float, default=24, help="between two runs; 0: no compaction")
    add("--noncurrent-days", type=float, default=Choices().noncurrent_days, help="NoncurrentDays of the templates")
    add("--merged-class", choices=CLASSES, default=STANDARD, help="storage class of merged segments")
    add("--time-control", action="store_true", help="S3's replication time control")
    add("--kms", choices=("none", "bucket-key", "object"), default="none")
    return parser


if __name__ == "__main__":
    main()
