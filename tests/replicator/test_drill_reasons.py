"""Why a drill has no RPO: the file and the cluster that were asked, and the answer."""

from __future__ import annotations

import socket
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from formats.segment import OffsetRange
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.waiting import wait_until
from tests.processes.harness import to_toml
from tests.replicator.restore.history import Archive, History, Stored
from tests.replicator.restore.place import Commands, Place

pytestmark = pytest.mark.integration

WHOLE = Archive([History(0, "", [Stored(OffsetRange(0, 59), 0)], [], set())], has_second_life=False)


def file(place: Place, name: str, **changes: Any) -> Path:
    """The tables of the place with `changes`; None removes a table."""
    s3 = {**place.tables["s3"], "secret_access_key": "${SECRET}"}
    tables = {name: table for name, table in {**place.tables, "s3": s3, **changes}.items() if table is not None}
    path = place.folder / name
    path.write_text(to_toml(tables), encoding="utf-8")
    return path


def scratch(place: Place) -> Path:
    return file(place, "scratch.toml", kafka={"bootstrap.servers": place.stack.brokers["a"].bootstrap})


def test_the_cluster_of_the_file_is_no_scratch_cluster(place: Place, commands: Commands) -> None:
    """A drill deletes topics."""
    topic = place.unique("orders")
    WHOLE.write(place.objects, topic)
    code, text = commands.run("drill", topic, "--into", str(place.file))
    assert (code, f"that of {place.file}: give the file of a disposable cluster" in text) == (1, True), text


def drilled(place: Place, commands: Commands, *more: str) -> str:
    topic = place.unique("orders")
    WHOLE.write(place.objects, topic)
    code, text = commands.run("drill", topic, "--into", str(scratch(place)), *more)
    assert code == 0, text
    assert text.startswith("1 partitions, 60 records, ")
    assert "every one of them equal" in text
    admin = KafkaAdmin({"bootstrap.servers": place.stack.brokers["a"].bootstrap})

    def left() -> list[str]:  # a deleted topic is listed for a moment
        return [n for n in admin.topics() if n.startswith(("drill-", "replicator.restore.drill-")) or n == topic]

    assert wait_until(lambda: not left(), timedelta(seconds=20)), left()
    return text.splitlines()[-1]


def test_a_cluster_that_has_none_of_the_topics(place: Place, commands: Commands) -> None:
    where = f"the cluster of {place.file} ({place.cluster.broker.bootstrap})"
    wanted = f"RPO unknown: {where} was asked, and has none of these topics: is it the source?"
    assert drilled(place, commands) == wanted


def test_a_file_of_another_region_is_not_asked(place: Place, commands: Commands) -> None:
    """Its topics may have the same names."""
    other = file(place, "b.toml", region="b")
    wanted = f"RPO unknown: {other} is of region b, and does not know a's cluster: give its file"
    assert drilled(place, commands, "--source", str(other)) == wanted


def test_a_file_without_a_cluster(place: Place, commands: Commands) -> None:
    none = file(place, "none.toml", kafka=None)
    wanted = f"RPO unknown: {none} names no cluster: add [kafka], or give another file"
    assert drilled(place, commands, "--source", str(none)) == wanted


@pytest.mark.long
def test_a_cluster_that_does_not_answer_says_why(place: Place, commands: Commands) -> None:
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        gone = file(place, "gone.toml", kafka={"bootstrap.servers": server})
        reason = drilled(place, commands, "--source", str(gone))
    assert reason.startswith(f"RPO unknown: the cluster of {gone} ({server}) was asked: list offsets of ")
    assert "Connection refused" in reason
