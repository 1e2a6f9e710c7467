from __future__ import annotations

import ctypes
import logging
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer

from bench.child import ROOT
from infra.kafka.client import librdkafka
from infra.spark.packages import pack
from tests.native import make


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is found out once for the process is found out again."""
    librdkafka.unfit.cache_clear()
    librdkafka.is_fit.cache_clear()
    yield
    librdkafka.unfit.cache_clear()
    librdkafka.is_fit.cache_clear()


def test_this_machine_is_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every test of compiled code would prove nothing."""
    monkeypatch.delenv(librdkafka.SWITCH, raising=False)
    assert librdkafka.unfit() == ""


@pytest.mark.parametrize("kind", [Consumer, Producer])
def test_the_handle_is_that_of_the_client_until_it_is_closed(kind: type[Consumer | Producer]) -> None:
    client = kind({"group.id": "g", "client.id": "who"} if kind is Consumer else {"client.id": "who"})
    name = librdkafka.function("rd_kafka_name", ctypes.c_char_p, ctypes.c_void_p)
    assert name(librdkafka.handle(client)).decode().startswith(f"who#{kind.__name__.lower()}-")
    if isinstance(client, Consumer):
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            librdkafka.handle(client)


def test_the_decision_names_what_is_fit() -> None:
    text = (ROOT / "docs" / "decisions" / "0043-native-records.md").read_text(encoding="utf-8")
    assert f"on `{librdkafka.TARGET}` with glibc" in text
    assert f"librdkafka {' and '.join(librdkafka.TESTED)}," in text


def test_what_is_unfit_is_logged_once_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(librdkafka.SWITCH, raising=False)
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("2.99.0", 0x026300FF))
    with caplog.at_level(logging.INFO):
        assert not librdkafka.is_fit()
        assert not librdkafka.is_fit()
    (record,) = [record for record in caplog.records if record.message == "native_records_off"]
    assert "librdkafka 2.99.0 is not among the tested" in getattr(record, "reason", "")
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize(
    ("owner", "name", "value", "reason"),
    [
        (platform, "system", lambda: "Darwin", "no compiled objects for darwin-x86_64"),
        (platform, "machine", lambda: "riscv64", "no compiled objects for linux-riscv64"),
        (platform, "libc_ver", lambda: ("", ""), "not glibc"),
        (confluent_kafka, "__file__", "/nowhere/confluent_kafka/__init__.py", "not installed from its wheel"),
        (confluent_kafka, "version", lambda: "2.12.0", "confluent_kafka 2.12.0"),
        (librdkafka, "OBJECTS", Path("/nowhere"), "compiled objects are not installed in /nowhere: consume, produce"),
    ],
)
def test_another_environment_is_unfit(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object, reason: str
) -> None:
    monkeypatch.delenv(librdkafka.SWITCH, raising=False)
    librdkafka._library.cache_clear()
    monkeypatch.setattr(owner, name, value)
    try:
        assert reason in librdkafka.unfit()
    finally:
        librdkafka._library.cache_clear()


def test_the_switch_is_no_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(librdkafka.SWITCH, "off")
    with caplog.at_level(logging.INFO):
        assert not librdkafka.is_fit()
    (record,) = caplog.records
    assert record.levelno == logging.INFO


def test_each_object_is_built_from_the_sources_beside_it() -> None:
    assert librdkafka.names() == [source.stem for source in make.sources()]
    for source in make.sources():
        assert librdkafka.compiled(source.stem).sources == make.digest(source), "run `make native`"


@pytest.mark.long
def test_the_sources_give_exactly_these_objects(tmp_path: Path) -> None:
    for path in make.build(tmp_path):
        assert path.read_bytes() == (make.SOURCES / path.name).read_bytes()


def test_objects_are_loaded_from_the_zip_file_of_a_spark_worker(tmp_path: Path) -> None:
    packed = pack(tmp_path / "packages.zip")
    script = """
import sys
sys.path.insert(0, sys.argv[1])
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
from infra.kafka.client import librdkafka
from infra.kafka.consumer import message_queue
assert librdkafka.__file__.startswith(sys.argv[1])
assert not librdkafka.unfit(), librdkafka.unfit()
message_queue._calls()
for name in librdkafka.names():
    print(name, librdkafka.compiled(name).sources)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(packed)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{source.stem} {make.digest(source)}" for source in make.sources()]


def test_a_command_that_reads_no_records_loads_nothing_of_it() -> None:
    script = "import replicator.main, sys; sys.exit(any(name.endswith('client.librdkafka') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
