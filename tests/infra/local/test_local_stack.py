"""The embedded stack: its behaviour, and that no process or file is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local import aws, detached, ports
from infra.local.errors import LocalStackError, tail
from infra.local.identity import ProcessIdentity, identify, process_start
from infra.local.process import Supervisor
from infra.local.server import Server
from infra.local.stack import LocalStack
from tests.infra.deploy.template import Template
from tests.infra.local.processes import PATIENCE, ROOT, answers, child, eventually, printed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infra.local.broker import Broker
    from infra.local.process import Process


START_SECONDS = 90.0
READY_WITHIN = timedelta(seconds=20)
WAIT_FOREVER = "import signal; signal.pause()"

# --- ports, processes -------------------------------------------------------------------------------------------------


class TestPorts:
    def test_free_ports_differ_and_are_outside_the_outgoing_range(self) -> None:
        found = ports.free_ports(50)
        assert len(set(found)) == 50
        assert all(ports.LOWEST_PORT <= port < ports.outgoing_from() for port in found)

    def test_a_taken_port_is_not_free(self) -> None:
        with socket.socket() as server:
            server.bind((ports.HOST, 0))
            server.listen(1)
            port = server.getsockname()[1]
            assert not ports.is_free(port)
            assert ports.listens(port)

    def test_a_lost_race_is_detected_from_the_log(self) -> None:
        assert ports.lost_race("org.apache.kafka.common.KafkaException: ... Address already in use.")
        assert ports.lost_race("Address already in use\nPort 5000 is in use by another program.")
        assert not ports.lost_race("java.lang.OutOfMemoryError")


class TestServer:
    def test_a_port_lost_to_another_process_is_replaced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = tmp_path / "log"
        owner = Supervisor(log=tmp_path / "supervisor.log")

        def launch(given: tuple[int, ...]) -> Process:
            command = [sys.executable, "-u", "-m", "http.server", "--bind", ports.HOST, str(given[0])]
            return owner.start("web", command, log=log, cwd=tmp_path, env=os.environ)

        with socket.socket() as rival:
            rival.bind((ports.HOST, 0))
            rival.listen(1)
            taken = rival.getsockname()[1]
            offers = iter([(taken,), ports.free_ports(1)])
            monkeypatch.setattr("infra.local.server.free_ports", lambda _count: next(offers))
            server = Server(
                name="web",
                log=log,
                port_count=1,
                launch=launch,
                answers=lambda: "Serving HTTP" in server.logged(),  # the other process listens, too
                abort=threading.Event(),
            )
            try:
                server.start(PATIENCE)
                assert server.port != taken
                assert ports.listens(server.port)
                server.start(PATIENCE)  # it runs: no effect
                server.check()
            finally:
                owner.close()


class TestIdentity:
    def test_a_process_is_identified_by_pid_and_start_time(self) -> None:
        myself = identify(os.getpid())
        assert myself is not None
        assert myself.alive()
        assert not ProcessIdentity(pid=os.getpid(), started="another moment").alive()

    def test_an_ended_process_is_not_alive_before_it_is_reaped(self) -> None:
        with child(WAIT_FOREVER) as process:
            one = identify(process.pid)
            assert one is not None
            process.kill()
            assert eventually(lambda: not one.alive())
        assert process_start(process.pid) == ""

    @pytest.mark.parametrize("pid", [1, 0, -1])
    def test_pids_of_more_than_one_process_are_rejected(self, pid: int) -> None:
        with pytest.raises(ValueError, match="not a process of ours"):
            ProcessIdentity(pid=pid, started="x")


class TestSupervisor:
    def start(self, owner: Supervisor, folder: Path, source: str, name: str = "one") -> ProcessIdentity:
        owner.start(name, [sys.executable, "-c", source], log=folder / f"{name}.log", cwd=folder, env=os.environ)
        return owner.identities()[name]

    def test_close_ends_stubborn_and_frozen_processes_and_removes_the_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "stack"
        folder.mkdir()
        owner = Supervisor(log=tmp_path / "log", remove=[folder], grace=timedelta(seconds=0.5))
        deaf = (
            f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WAIT_FOREVER}"
        )
        ones = [self.start(owner, folder, deaf, "deaf"), self.start(owner, folder, WAIT_FOREVER, "frozen")]
        assert eventually(lambda: "deaf" in (folder / "deaf.log").read_text(encoding="utf-8"))
        owner.signal("frozen", signal.SIGSTOP)
        owner.close()
        owner.close()
        assert not any(one.alive() for one in ones)
        assert not folder.exists()

    def test_no_process_survives_a_killed_supervisor(self, tmp_path: Path) -> None:
        folder = tmp_path / "stack"
        folder.mkdir()
        owner = Supervisor(log=tmp_path / "log", remove=[folder])
        one = self.start(owner, folder, WAIT_FOREVER)
        os.kill(owner.pid, signal.SIGKILL)
        with pytest.raises(LocalStackError, match=r"supervisor .* has ended"):
            owner.poll("one")
        owner.close()
        assert not one.alive()
        assert not folder.exists()

    def test_a_process_that_cannot_be_started_is_reported(self, tmp_path: Path) -> None:
        owner = Supervisor(log=tmp_path / "log")
        try:
            with pytest.raises(LocalStackError, match=r"cannot start one: .*no-such-program"):
                owner.start("one", ["/no-such-program"], log=tmp_path / "one", cwd=tmp_path, env={})
        finally:
            owner.close()

    def test_everything_ends_although_a_forked_child_of_the_killed_parent_keeps_the_pipe(self, tmp_path: Path) -> None:
        source = f"""
            import json, os, signal, sys
            from datetime import timedelta
            from pathlib import Path
            from infra.local.process import Supervisor
            folder = Path({str(tmp_path)!r}) / "stack"
            folder.mkdir()
            owner = Supervisor(log=folder.parent / "log", remove=[folder])
            command = [sys.executable, "-c", {WAIT_FOREVER!r}]
            one = owner.start("one", command, log=folder / "log", cwd=folder, env=os.environ)
            forked = os.fork()
            if not forked:
                signal.pause()
            print(json.dumps(dict(forked=forked, pids=[one.pid, owner.pid])), flush=True)
            signal.pause()
        """
        with child(source) as process:
            answer = printed(process)
            pids, forked = answer["pids"], answer["forked"]
            assert isinstance(pids, list)
            assert isinstance(forked, int)
            ones = [identify(pid) for pid in pids]
            process.kill()
            try:
                assert eventually(lambda: not any(one.alive() for one in ones if one))
                assert eventually(lambda: not (tmp_path / "stack").exists())
            finally:
                os.kill(forked, signal.SIGKILL)


# --- the state of a detached stack ------------------------------------------------------------------------------------


def a_state(folder: Path, processes: Mapping[str, ProcessIdentity]) -> detached.StackState:
    return detached.StackState(
        dir=folder,
        keep_dir=True,
        kafka_version="4.3.1",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        brokers={"a": "127.0.0.1:17000"},
        endpoint_url="http://127.0.0.1:17001",
        processes=processes,
    )


class TestState:
    def test_the_state_is_read_as_written(self, tmp_path: Path) -> None:
        one = a_state(tmp_path, {"supervisor": ProcessIdentity(pid=77, started="b")})
        assert detached.StackState.from_json(json.loads(json.dumps(one.to_json()))) == one

    def test_a_missing_state_file_is_no_error(self, tmp_path: Path) -> None:
        assert detached.status(dir=tmp_path) is None
        assert detached.down(dir=tmp_path) is None

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}'])
    def test_a_file_that_cannot_be_read_is_an_error_and_stays(self, tmp_path: Path, text: str) -> None:
        (tmp_path / detached.STATE_FILE).write_text(text, encoding="utf-8")
        with pytest.raises(LocalStackError, match=r"cannot read .*state\.json"):
            detached.down(dir=tmp_path)
        assert (tmp_path / detached.STATE_FILE).exists()

    def test_down_ignores_a_process_that_only_has_the_same_pid(self, tmp_path: Path) -> None:
        with child(WAIT_FOREVER) as innocent:
            forged = ProcessIdentity(pid=innocent.pid, started="before the machine was restarted")
            written = a_state(tmp_path, {"supervisor": forged, "broker-a": forged})
            (tmp_path / detached.STATE_FILE).write_text(json.dumps(written.to_json()), encoding="utf-8")
            found = detached.status(dir=tmp_path)
            assert found is not None
            assert found.down
            assert not found.up
            assert detached.down(dir=tmp_path) == written
            assert innocent.poll() is None
        assert not (tmp_path / detached.STATE_FILE).exists()

    def test_down_ends_the_processes_of_a_killed_supervisor(self, tmp_path: Path) -> None:
        with child(WAIT_FOREVER) as orphan:
            one = identify(orphan.pid)
            assert one is not None
            gone = ProcessIdentity(pid=orphan.pid, started="gone")
            written = a_state(tmp_path, {"supervisor": gone, "broker-a": one})
            (tmp_path / detached.STATE_FILE).write_text(json.dumps(written.to_json()), encoding="utf-8")
            detached.down(dir=tmp_path)
            assert not one.alive()


def test_region_names_must_be_valid_and_different() -> None:
    for regions in ((), ("a", "a"), ("A",), ("../a",)):
        with pytest.raises(ValueError, match="regions must be different words"):
            LocalStack(regions=regions)


def test_the_tail_of_a_log_has_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "no log" in tail(log)
    log.write_text("\n".join(str(n) for n in range(100)), encoding="utf-8")
    assert tail(log, lines=2) == "  98\n  99"


# --- real brokers, S3 and SQS -----------------------------------------------------------------------------------------


def make_topic(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(timeout=PATIENCE.total_seconds())


def has_topic(broker: Broker, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics


def produce(broker: Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(PATIENCE.total_seconds()) == 0


def consume(broker: Broker, topic: str) -> bytes | None:
    """The value of the first record."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(PATIENCE.total_seconds())
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def identities(pids: Mapping[str, int]) -> list[ProcessIdentity]:
    found = [identify(pid) for pid in pids.values()]
    assert all(found)
    return [one for one in found if one]


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


@pytest.fixture
def temp_dir(tmp_path: Path) -> Path:
    """A folder for temporary files, which must be empty at the end."""
    folder = tmp_path / "temp"
    folder.mkdir()
    return folder


STACK_CHILD = """
    import json, signal, threading
    from infra.local.detached import run_foreground
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits it ignored
    def ready(stack):
        print(json.dumps(dict(pids=dict(stack.pids()), dir=str(stack.dir))), flush=True)
    run_foreground(on_ready=ready, stop=threading.Event(), regions=("only",))
"""


@pytest.mark.integration
class TestStack:
    def test_two_brokers_s3_and_sqs_are_ready_in_time(self, stack: LocalStack) -> None:
        assert stack.started_in < READY_WITHIN

    @pytest.mark.parametrize("region", ["a", "b"])
    def test_a_record_is_produced_and_consumed(self, stack: LocalStack, topic_name: str, region: str) -> None:
        broker = stack.brokers[region]
        make_topic(broker, topic_name)
        produce(broker, topic_name, region.encode())
        assert consume(broker, topic_name) == region.encode()

    def test_a_queue_lets_its_bucket_send_as_the_deployed_one_does(
        self, stack: LocalStack, unique: Callable[[str], str]
    ) -> None:
        """By the same policy, so that `replicator doctor` finds nothing in it."""
        bucket = unique("bucket")
        url = aws.create_bucket_with_queue(stack.moto.endpoint_url, bucket, f"{bucket}-events")
        with closing(aws.sqs_client(stack.moto.endpoint_url)) as sqs:
            found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
        names = {"BucketName": bucket, "ArchiveRegion": "a", "SourceRegion": "b"}
        deployed = Template("target-region", names, region=aws.REGION).properties("EventsQueuePolicy")
        assert json.loads(found) == deployed["PolicyDocument"]

    def test_creation_and_removal_of_an_object_send_messages(
        self, stack: LocalStack, unique: Callable[[str], str]
    ) -> None:
        bucket, queue = unique("bucket"), unique("queue")
        url = aws.create_bucket_with_queue(stack.moto.endpoint_url, bucket, queue, prefix="data/")
        assert aws.create_bucket_with_queue(stack.moto.endpoint_url, bucket, queue, prefix="data/") == url
        s3, sqs = aws.s3_client(stack.moto.endpoint_url), aws.sqs_client(stack.moto.endpoint_url)
        seen: list[tuple[str, str]] = []

        def receive() -> bool:
            for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
                records = json.loads(message["Body"]).get("Records", [])
                seen.extend((one["eventName"], unquote_plus(one["s3"]["object"]["key"])) for one in records)
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            return len(seen) >= 2

        try:
            s3.put_object(Bucket=bucket, Key="other/1", Body=b"not ours")
            s3.put_object(Bucket=bucket, Key="data/1", Body=b"one")
            s3.delete_object(Bucket=bucket, Key="data/1")
            assert eventually(receive)
        finally:
            s3.close()
            sqs.close()
        assert seen == [("ObjectCreated:Put", "data/1"), ("ObjectRemoved:Delete", "data/1")]

    @pytest.mark.long
    def test_a_broker_comes_back_with_its_port_and_its_data(self, stack: LocalStack, topic_name: str) -> None:
        broker = stack.brokers["b"]
        before = broker.bootstrap
        make_topic(broker, topic_name)
        produce(broker, topic_name, b"kept")
        broker.stop()
        assert not answers(broker)
        assert answers(stack.brokers["a"])
        broker.start()
        assert broker.bootstrap == before
        assert consume(broker, topic_name) == b"kept"
        broker.kill()
        broker.start()
        assert consume(broker, topic_name) == b"kept"

    def test_a_frozen_broker_is_silent_until_it_is_thawed(self, stack: LocalStack) -> None:
        broker = stack.brokers["a"]
        broker.freeze()
        try:
            assert not answers(broker)
        finally:
            broker.thaw()
        assert eventually(lambda: answers(broker))

    def test_two_stacks_coexist_and_an_exception_ends_one_completely(
        self, stack: LocalStack, topic_name: str, temp_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(temp_dir))
        ones: list[ProcessIdentity] = []

        def use_and_fail() -> None:
            with LocalStack(regions=("a",)) as other:
                ones.extend(identities(other.pids()))
                assert other.brokers["a"].bootstrap != stack.brokers["a"].bootstrap
                make_topic(other.brokers["a"], topic_name)
                assert has_topic(other.brokers["a"], topic_name)
                assert not has_topic(stack.brokers["a"], topic_name)
                other.check()
                os.kill(other.pids()["broker-a"], signal.SIGKILL)
                assert eventually(lambda: not answers(other.brokers["a"]))
                other.check()

        with pytest.raises(LocalStackError, match=r"(?s)broker-a died: ended by SIGKILL.*broker-a\.log.*Kafka"):
            use_and_fail()
        assert len(ones) == 3
        assert not any(one.alive() for one in ones)
        assert is_empty(temp_dir)
        stack.check()

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    @pytest.mark.long
    def test_a_parent_that_ends_leaves_nothing(self, temp_dir: Path, number: signal.Signals) -> None:
        with child(STACK_CHILD, TMPDIR=str(temp_dir)) as process:
            answer = printed(process)
            pids = answer["pids"]
            assert isinstance(pids, dict)
            assert set(pids) == {"supervisor", "broker-only", "moto"}
            ones = identities(pids)
            assert Path(str(answer["dir"])).parent == temp_dir
            process.send_signal(number)
            process.wait(timeout=PATIENCE.total_seconds())
            assert eventually(lambda: not any(one.alive() for one in ones))
            assert eventually(lambda: is_empty(temp_dir))

    def test_ctrl_c_during_the_start_leaves_nothing(self, temp_dir: Path) -> None:
        with child(STACK_CHILD, TMPDIR=str(temp_dir)) as process:
            assert eventually(lambda: any("INFO" in tail(log) for log in temp_dir.glob("*/logs/broker-only.log")))
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=PATIENCE.total_seconds()) != 0
            assert is_empty(temp_dir)
            assert process.stdout is not None
            assert process.stdout.read() == ""

    def test_a_broker_that_cannot_start_shows_its_log(
        self, temp_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(temp_dir))
        with pytest.raises(LocalStackError) as caught, LocalStack(broker_config={"authorizer.class.name": "no.Such"}):
            pytest.fail("it started")
        message = str(caught.value)
        assert "did not start" in message
        assert "ended with exit code" in message
        assert "no.Such" in message
        log = next(word for word in message.replace(",", " ").split() if word.endswith(".log"))
        assert "no.Such" in Path(log).read_text(encoding="utf-8")  # although the stack's folder is removed
        assert is_empty(temp_dir)

    @pytest.mark.long
    def test_a_failing_test_leaves_nothing_and_names_the_logs(self, temp_dir: Path, tmp_path: Path) -> None:
        test = tmp_path / "test_failing.py"
        source = """
            import pytest

            @pytest.mark.integration
            def test_fails(stack, tmp_path_factory):
                (tmp_path_factory.getbasetemp().parent / "pids").write_text(" ".join(map(str, stack.pids().values())))
                raise RuntimeError
        """
        test.write_text(textwrap.dedent(source), encoding="utf-8")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"),
                *("-p", "tests.conftest", "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "base"), str(test)),
            ],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(temp_dir)},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
        assert "RuntimeError" in done.stdout
        assert f"logs: {temp_dir}" in done.stdout
        pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()]
        assert len(pids) == 4
        assert not any(process_start(pid) for pid in pids)
        assert is_empty(temp_dir)

    @pytest.mark.long
    def test_a_detached_stack_runs_until_down_and_keeps_a_chosen_folder(self, tmp_path: Path, topic_name: str) -> None:
        folder = tmp_path / "mine"
        source = f"""
            import json, sys
            from datetime import timedelta
            from pathlib import Path
            from infra.local.detached import up_detached

            def run_a_job(stack):
                assert stack.start("job", [sys.executable, "-c", ""], env={{}}).wait(timedelta(seconds=30)) == 0

            state = up_detached(regions=("a",), dir=Path({str(folder)!r}), prepare=run_a_job)
            print(json.dumps(state.to_json()), flush=True)
        """
        with child(source) as process:
            started = detached.StackState.from_json(printed(process))
            assert process.wait(timeout=PATIENCE.total_seconds()) == 0
        try:
            found = detached.status(dir=folder)
            assert found is not None
            assert found.up
            assert found.state == started
            assert "job" not in found.alive, "it has ended, as it should"
            admin = AdminClient({"bootstrap.servers": started.brokers["a"]})
            admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(timeout=10)
            with pytest.raises(LocalStackError, match=r"runs already in .*replicator local down"):
                detached.up_detached(regions=("a",), dir=folder)
        finally:
            ended = detached.down(dir=folder)
        assert ended == started
        assert not any(one.alive() for one in started.processes.values())
        assert detached.status(dir=folder) is None
        assert "Kafka" in (started.log_dir / "broker-a.log").read_text(encoding="utf-8")
        with LocalStack(regions=("a",), dir=folder) as again:
            assert has_topic(again.brokers["a"], topic_name)
