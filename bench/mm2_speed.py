"""How fast a topic is copied from one broker to another, beside MirrorMaker 2, and what that costs.

    python -m bench.mm2_speed        writes the table of docs/mm2-comparison.md

Both copy the same records, which are all there at the start, one program after the other, each with a quarter of them
and with all: the difference is the steady state. Ours are `replicator egress` and `replicator ingress` with versitygw
between them, exactly once; MirrorMaker 2 has its defaults, at least once, with two tasks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import child, mirrormaker
from bench.behaviour import described_commit
from bench.child import ROOT, ChildFailed
from bench.latency_services import TOPICS, cpu_seconds, peak_rss_mib, reader_properties, start_services, storage_of
from bench.report import replaced
from bench.topics import KEPT, ClusterTopics
from infra.kafka.client.idempotent_producer import producer_properties
from infra.local.jars import KAFKA_VERSION
from infra.local.stack import LocalStack
from ingress.delivery.sizes import PRODUCER_BYTES

PAGE = ROOT / "docs" / "mm2-comparison.md"
BEGIN, END = "<!-- written by `make bench-mm2-speed` -->", "<!-- end of speed -->"
PARTITIONS, RECORDS, QUARTERS = 6, 600_000, 4
TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One run of one program."""

    records: int
    seconds: float  # from the first record at the target to the last
    cpu_seconds: float  # of the program's processes, from their start
    peak_rss_mib: float


def copied(records: int, start: Callable[[LocalStack], Mapping[str, int]], target: str, folder: Path) -> Copied:
    """`start` starts the program, and returns the process ids by name; `target`: the topic that it fills."""
    with LocalStack(regions=("a", "b"), java_options=("-Xmx1g",)) as stack:
        brokers = {region: stack.brokers[region].bootstrap for region in TOPICS}
        ClusterTopics(brokers["a"]).create(TOPICS["a"], PARTITIONS, KEPT)
        produced = {
            "properties": producer_properties({"bootstrap.servers": brokers["a"]}, memory_bytes=PRODUCER_BYTES),
            "topic": TOPICS["a"],
            "partitions": PARTITIONS,
            "records": records,
            "kind": "json",
        }
        read = {
            "properties": reader_properties(brokers["b"]),
            "topic": target,
            "partitions": PARTITIONS,
            "records": records,
            "measured_from_ms": 2**62,
            "timeout_seconds": TIMEOUT_SECONDS,
        }
        log = folder / f"{target}-{records}.log"
        child.run("bench.bare", "produce", produced, log=log, timeout_seconds=TIMEOUT_SECONDS)
        pids = start(stack)
        arrived = child.run("bench.arrivals", "read", read, log=log, timeout_seconds=TIMEOUT_SECONDS + 60).other
        if arrived["records"] != records:
            raise ChildFailed(f"{target}: {arrived['records']} of {records} records; see {stack.log_dir}")
        return Copied(
            records=records,
            seconds=arrived["last_at"] - arrived["first_at"],
            cpu_seconds=sum(map(cpu_seconds, pids.values())),
            peak_rss_mib=sum(map(peak_rss_mib, pids.values())),
        )


def of_mirror_maker(records: int, folder: Path) -> Copied:
    def start(stack: LocalStack) -> Mapping[str, int]:
        flows = {("a", "b"): TOPICS["a"]}
        text = mirrormaker.properties(stack, flows, **{"tasks.max": "2"})
        return {"MirrorMaker 2": mirrormaker.start(stack, "mm2", text).pid}

    return copied(records, start, f"a.{TOPICS['a']}", folder)


def of_ours(records: int, folder: Path) -> Copied:
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ExitStack() as opened:

        def start(stack: LocalStack) -> Mapping[str, int]:
            ClusterTopics(stack.brokers["b"].bootstrap).create(TOPICS["b"], PARTITIONS, KEPT)
            storage = opened.enter_context(storage_of("versitygw", stack, Path(scratch)))
            return {name: one.pid for name, one in start_services(stack, storage, "1s").processes.items()}

        return copied(records, start, TOPICS["b"], folder)


# --- the page ---------------------------------------------------------------------------------------------------------


def table(runs: Mapping[str, tuple[Copied, Copied]], *, at: datetime, commit: str) -> str:
    """`runs`: the small and the large run of each program."""
    lines = [
        f"One run at {commit}, {at:%Y-%m-%d %H:%M} UTC, MirrorMaker {KAFKA_VERSION}, records of 1 kB JSON with key and "
        f"two headers, {PARTITIONS} partitions; two brokers, the S3 server and the programs share the cores.",
        "",
        "| program | records | records/s | CPU-seconds per million, marginal | start-up, CPU-seconds | peak RSS, MB |",
        "|---|---|---|---|---|---|",
    ]
    for name, (small, large) in runs.items():
        marginal = (large.cpu_seconds - small.cpu_seconds) / (large.records - small.records)
        start_up = small.cpu_seconds - marginal * small.records
        lines.append(
            f"| {name} | {large.records:,} | {large.records / max(large.seconds, 0.001):,.0f} | {marginal * 1e6:.1f} "
            f"| {start_up:.1f} | {large.peak_rss_mib * 1.048576:.0f} |"
        )
    return "\n".join(lines)


def with_table(page: str, text: str) -> str:
    """The page with its table replaced. Raises ValueError without the markers."""
    return replaced(page, BEGIN, END, f"{BEGIN}\n{text}\n{END}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mm2_speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--dry", action="store_true", help="print the table only")
    options = parser.parse_args(arguments)
    mirrormaker.class_path()  # fetched before anything is measured
    large = options.records // QUARTERS // PARTITIONS * PARTITIONS * QUARTERS
    programs = {"egress and ingress, exactly once": of_ours, "MirrorMaker 2, at least once": of_mirror_maker}
    with tempfile.TemporaryDirectory(prefix="replicator-mm2-speed-") as folder:
        runs = {
            name: (program(large // QUARTERS, Path(folder)), program(large, Path(folder)))
            for name, program in programs.items()
        }
    text = table(runs, at=datetime.now(UTC), commit=described_commit())
    if not options.dry:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
