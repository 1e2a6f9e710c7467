"""Compaction as users run it: the command on Spark, a real cluster of which a worker dies, and the clock."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compaction.run import Compactor, JobSelection
from formats.codec import VERSION
from formats.control.keys import generations_prefix
from formats.control.packed import pack
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.control import ControlStore
from infra.archive.generations import Generations
from infra.archive.lease import NAME
from infra.local.spark import DRIVER_PROPERTIES, spark_cluster
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop, SystemClock
from replicator.config import from_mapping
from replicator.services.compaction import Compaction, in_process
from tests.fakes.surroundings import HandClock
from tests.formats.sample_records import ORIGIN, batch_of
from tests.integration.bucket import Bucket
from tests.integration.crossing import Crossing
from tests.integration.on_spark import PATIENCE, QUICK, killing_one, pages_of
from tests.processes.below import marked
from tests.processes.s3_proxy import Slow, proxied

pytestmark = pytest.mark.integration


@pytest.fixture
def bucket(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Bucket]:
    made = Bucket(stack, unique, tmp_path)
    yield made
    made.client.close()


def ended(process: subprocess.Popen[str], code: int) -> str:
    out, err = process.communicate(timeout=PATIENCE.total_seconds())
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    return out


def test_the_command(bucket: Bucket) -> None:
    """Dry run, run, and a corrupt segment: exit code 3."""
    bucket.fill("orders", partitions=2, segments=6, rows=50)
    sources = [SourcePartition("a", "orders", partition) for partition in range(2)]
    before = [bucket.read(source) for source in sources]
    planned = ended(bucket.command("--dry-run"), 0)
    assert "12 segments" in planned
    assert "merge 6 segments" in planned
    assert [len(bucket.segments(source)) for source in sources] == [6, 6]

    damaged = Segment(sources[1], 0, OffsetRange(100, 149))
    key = format_key("data", damaged)
    data = bytearray(bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read())
    data[len(data) // 3] ^= 1
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=bytes(data))
    [report] = json.loads(ended(bucket.command("--once", "--json"), 3))
    assert list(report["quarantined"]) == [str(damaged)]
    assert bucket.segments(sources[0]) == [Segment(sources[0], 1, OffsetRange(0, 299))]
    assert bucket.segments(sources[1]) == [
        damaged,
        Segment(sources[1], 1, OffsetRange(0, 99)),
        Segment(sources[1], 1, OffsetRange(150, 299)),
    ]
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert bucket.read(sources[0]) == before[0]
    assert "nothing to do" in ended(bucket.command("--once"), 0), "it is not damaged any more: `verify` misses it"


@pytest.mark.long
def test_a_cluster_that_loses_a_worker(bucket: Bucket, tmp_path: Path) -> None:
    """Executors do the work, the driver sees no segment, and a worker killed in mid-merge costs nothing but time."""
    sizes = bucket.fill("orders", partitions=12, segments=4, rows=400, noise_bytes=1700)
    crossing = Crossing(tmp_path / "events")
    sources = [SourcePartition("a", "orders", partition) for partition in range(12)]
    before = [bucket.read(source) for source in sources]
    with spark_cluster(tmp_path / "spark", workers=2) as cluster:
        properties = {**DRIVER_PROPERTIES, **QUICK, **crossing.properties, "spark.ui.enabled": "true"}
        tables = bucket.tables(master=cluster.master, spark=properties, ship_packages=True)
        with Compaction(from_mapping(tables)) as compaction, crossing.watched():

            def run() -> None:
                assert not any(report.failed for report in compaction.compact())

            killing_one(run, lambda: pages_of(compaction.spark), cluster)
    assert [len(bucket.segments(source)) for source in sources] == [1] * 12
    assert [bucket.read(source) for source in sources] == before
    crossing.assert_only_plans(sizes, executors=2)


def test_generations_stay_while_the_clocks_differ(
    bucket: Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that is ahead they would seem old enough to go."""
    generations = Generations(bucket.objects, generations_prefix("data", "a", "heartbeat"))
    assert all(generations.put(number, b"x") for number in (1, 2, 3))
    config = from_mapping(bucket.tables())
    with ExitStack() as opened, Compaction(config, execute=in_process(config, opened)) as compaction:
        monkeypatch.setattr(compaction, "_clock", HandClock(datetime.now(UTC) + timedelta(days=1)))
        compaction.compact()
        assert len(generations.stored()) == 3
        [warning] = [record for record in caplog.records if record.message == "generations_not_thinned"]
        assert "clock" in warning.__dict__["error"]
    generations = Generations(bucket.objects, generations_prefix("data", "a", "watermarks"))
    observed = pack({"observed_at": datetime.now(UTC).isoformat(), "v": VERSION})
    assert all(generations.put(number, observed) for number in range(1, 6))
    with ExitStack() as opened, Compaction(config, execute=in_process(config, opened)) as compaction:
        compaction.compact()
    assert len(generations.stored()) < 3, "of each minute one"


def test_a_topic_of_which_nothing_is_stored_is_refused(bucket: Bucket) -> None:
    """A mistyped name had nothing to do."""
    bucket.fill("orders", partitions=1, segments=3, rows=20)
    process = bucket.command("--dry-run", "--topic", "ordres")
    _, error = process.communicate(timeout=PATIENCE.total_seconds())
    assert process.returncode == 2
    assert "ordres: nothing of it is stored below a/ (did you mean 'orders'?); stored there: orders" in error
    assert "3 segments" in ended(bucket.command("--dry-run", "--topic", "orders"), 0)


def test_only_a_run_over_everything_is_recorded(bucket: Bucket) -> None:
    bucket.fill("orders", partitions=1, segments=3, rows=20)
    with ExitStack() as opened:
        config = from_mapping(bucket.tables())
        with Compaction(config, execute=in_process(config, opened)) as compaction:
            compaction.compact("orders")
            compaction.compact(dry_run=True)
            assert compaction.runs.all() == {}
            before = datetime.now(UTC)
            [report] = compaction.compact()
            last = compaction.runs.all()[report.job]
            assert before <= last.began_at <= last.ended_at <= datetime.now(UTC)


def test_two_at_once_are_harmless(bucket: Bucket) -> None:
    """Without the lease's help: both plan, both write, both delete."""
    bucket.fill("orders", partitions=3, segments=5, rows=20)
    sources = [SourcePartition("a", "orders", partition) for partition in range(3)]
    before = [bucket.read(source) for source in sources]
    config = from_mapping(bucket.tables())
    ready = threading.Barrier(2)
    errors: list[BaseException] = []

    def one() -> None:
        assert config.compaction is not None
        with ExitStack() as opened:
            compactor = Compactor(
                region="a",
                store=bucket.store,
                control=ControlStore(bucket.objects, "data"),
                execute=in_process(config, opened),
                clock=SystemClock(),
                stop=Stop(),
            )
            ready.wait(30)
            try:
                compactor.run(config.compaction.jobs[0], JobSelection())
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert [len(bucket.segments(source)) for source in sources] == [1, 1, 1]
    assert [bucket.read(source) for source in sources] == before


@pytest.mark.long  # the night of the processes (test_compacted_while_read) is this, under traffic
def test_by_the_clock(bucket: Bucket) -> None:
    """Every second, until it is asked to end; what was written meanwhile is merged by a later run."""
    bucket.fill("orders", partitions=1, segments=3, rows=10)
    source = SourcePartition("a", "orders", 0)
    process = bucket.command(tables=bucket.tables({"name": "often", "cron": "* * * * * *", "max_level": 5}))
    try:
        assert wait_until(lambda: len(bucket.segments(source)) == 1, PATIENCE)
        for n in range(3, 5):
            name = Segment(source, 0, OffsetRange(n * 10, n * 10 + 9))
            body = io.BytesIO()
            writer = bucket.format.create(body)
            writer.write([batch_of(bucket.rows(name))])
            writer.close(name, ORIGIN)
            bucket.store.store(name, body, body.tell())
        assert wait_until(lambda: [s.offsets for s in bucket.segments(source)] == [OffsetRange(0, 49)], PATIENCE)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert '"compaction_next"' in err
    assert len(bucket.read(source)) == 50
    assert '"segments_merged"' in err


@pytest.mark.long
@pytest.mark.parametrize("at_work", [True, False], ids=["at-work", "as-spark-starts"])
@pytest.mark.parametrize("to_all", [False, True], ids=["to-the-process", "to-its-group"])
@pytest.mark.parametrize(("arguments", "code"), [(("--once",), 1), ((), 0)], ids=["once", "by-the-clock"])
def test_sigterm_in_mid_run(bucket: Bucket, arguments: tuple[str, ...], code: int, to_all: bool, at_work: bool) -> None:
    """It ends soon and in order, with all that it started, whether or not Java is asked, too; what is left undone is
    the next run's."""
    bucket.fill("orders", partitions=6, segments=6, rows=20)
    sources = [SourcePartition("a", "orders", partition) for partition in range(6)]
    before = [bucket.read(source) for source in sources]
    with proxied(bucket.endpoint_url) as proxy:
        proxy.break_("GetObject", Slow(0.5))
        tables = bucket.tables({"name": "often", "cron": "* * * * * *", "max_level": 5})
        tables["s3"]["endpoint_url"] = proxy.endpoint_url
        process = bucket.command(*arguments, tables=tables, own_group=True)
        try:
            if at_work:
                assert wait_until(lambda: any("/orders/" in path for path in proxy.asked("GetObject")), PATIENCE)
            else:
                assert wait_until(lambda: any("java" in one.command for one in marked(str(bucket.scratch))), PATIENCE)
            (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
            out, err = process.communicate(timeout=20)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    assert not any(line.startswith("Traceback") for line in err.splitlines())
    assert code == 0 or err.splitlines()[-1].startswith("replicator: stopped before everything was merged")
    assert wait_until(lambda: not marked(str(bucket.scratch)), timedelta(seconds=5)), marked(str(bucket.scratch))
    assert list(bucket.scratch.iterdir()) == []
    lease = ControlStore(bucket.objects, "data").leases.of("a", NAME)
    assert lease is not None
    assert lease.until <= datetime.now(UTC), "it was given back"
    assert any(len(bucket.segments(source)) > 1 for source in sources), "it was over before"
    assert [bucket.read(source) for source in sources] == before
    ended(bucket.command("--once"), 0)
    assert [len(bucket.segments(source)) for source in sources] == [1] * 6
    assert [bucket.read(source) for source in sources] == before


def test_without_a_cron_it_says_what_to_do(bucket: Bucket) -> None:
    process = bucket.command()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--once" in err
    assert "cron" in err
