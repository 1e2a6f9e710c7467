"""[encryption] as services and Spark's workers have it."""

from __future__ import annotations

import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from formats.errors import ConfigError, KeyRefused
from infra.contracts.storage import ObjectStore
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop
from infra.runtime.retry import RetryPolicy
from infra.settings.encryption import EncryptionSettings
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.config import Config, from_mapping
from replicator.config.show import table_of, to_toml
from replicator.services.encryption import KeyRetries, encrypted, sealed_only
from replicator.services.wiring import ServiceContext, for_workers
from tests.contracts.store import KEY, get, put
from tests.fakes.key_files import key_text

ARN = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ONCE = KeyRetries(Stop(), RetryPolicy(attempts=1, raises_refusals=True))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys.toml"
    made.write_text(key_text("new", new=1), encoding="utf-8")
    return made


def config_of(**encryption: object) -> Config:
    return from_mapping({"region": "a", "s3": {"bucket": "b"}, "encryption": encryption})


def opened(below: ObjectStore, settings: EncryptionSettings | None) -> ObjectStore:
    return encrypted(below, settings, "data", ONCE, ExitStack())


def test_workers_of_spark_need_no_key_file(path: Path) -> None:
    """The task brings the keys."""
    config, below = config_of(key="file", key_file=str(path)), MemoryObjectStore()
    put(opened(below, config.encryption), KEY, b"x")
    there = pickle.loads(pickle.dumps(for_workers(config)))
    path.unlink()
    assert get(opened(below, there.encryption), KEY) == b"x"
    put(opened(below, there.encryption), f"{KEY}0", b"y")
    path.write_text(key_text("new", new=1), encoding="utf-8")
    assert get(opened(below, config.encryption), f"{KEY}0") == b"y"


def test_processes_of_a_service_see_a_key_that_is_added(path: Path) -> None:
    config, below = config_of(key="file", key_file=str(path)), MemoryObjectStore()
    child = opened(below, pickle.loads(pickle.dumps(for_workers(config))).encryption)
    path.write_text(key_text("newer", new=1, newer=2), encoding="utf-8")
    put(opened(below, config.encryption), KEY, b"x")
    assert get(child, KEY) == b"x"


def test_a_task_is_not_sent_without_its_keys(tmp_path: Path) -> None:
    config = config_of(key="file", key_file=str(tmp_path / "absent.toml"))
    with pytest.raises(ConfigError, match=r"encryption\.key_file: .*absent\.toml cannot be read: FileNotFoundError"):
        for_workers(config)


def test_a_service_does_not_start_without_its_keys(tmp_path: Path) -> None:
    config = config_of(key="file", key_file=str(tmp_path / "absent.toml"))
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read"):
        opened(MemoryObjectStore(), config.encryption)


def test_keys_are_not_shown(path: Path) -> None:
    config = for_workers(config_of(key="file", key_file=str(path)))
    assert config.encryption is not None
    key = key_text("new", new=1).rpartition('= "')[2][:20]
    assert key in str(config.encryption.key_text)
    assert key not in repr(config)
    assert key not in to_toml(table_of(config))


def test_the_other_kind_of_key_is_named_where_it_is_missing(path: Path) -> None:
    below = MemoryObjectStore()
    config = config_of(key="file", key_file=str(path))
    put(opened(below, config.encryption), KEY, b"x")
    by_kms = config_of(key="kms", kms_key_id=ARN)
    with pytest.raises(KeyRefused, match=r"the key 'new' of a key file: set encryption\.key_file to one that has it"):
        opened(below, by_kms.encryption).open(KEY)
    moved = config_of(key="kms", kms_key_id=ARN, key_file=str(path))
    assert get(opened(below, moved.encryption), KEY) == b"x"


def test_objects_of_kms_name_their_key_where_only_a_file_is_known(path: Path) -> None:
    below = MemoryObjectStore()
    config = config_of(key="file", key_file=str(path))
    put(opened(below, config.encryption), KEY, b"x")
    data = get(below, KEY)
    trailer = data[-62 - 40 - 3 :]
    fixed = trailer[43:]
    lengths = len(ARN).to_bytes(2, "little") + fixed[46:50]
    head = ARN.encode() + trailer[3:43] + fixed[:44] + lengths
    below.replace(KEY, data[: -len(trailer)] + head + zlib.crc32(head).to_bytes(4, "little") + fixed[54:])
    with pytest.raises(KeyRefused, match=f"the KMS key {ARN}: add it to encryption.kms_read_key_ids"):
        opened(below, config.encryption).open(KEY)


def test_a_destination_takes_no_object_in_clear_where_they_are_refused(path: Path) -> None:
    settings = config_of(key="file", key_file=str(path), clear_objects="refuse").encryption
    assert settings is not None
    with pytest.raises(KeyRefused, match="it is not copied"):
        put(sealed_only(MemoryObjectStore(), settings, print), KEY, b"x")
    below = MemoryObjectStore()
    put(sealed_only(below, replace(settings, clear_objects="read"), print), KEY, b"x")
    put(below, f"{KEY}0", b"x")
    with pytest.raises(KeyRefused, match="is not encrypted, or was cut"):
        opened(below, settings).open(KEY)


def test_a_service_that_waits_for_its_key_names_the_key_and_not_the_bucket(path: Path) -> None:
    around = ServiceContext(config_of(key="file", key_file=str(path)))
    store = around.objects(around.config.s3, threads=1)
    path.unlink()
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put, store, KEY, b"x")
        try:
            assert wait_until(lambda: bool(around.health.snapshot().problems), timedelta(seconds=60))
            (found,) = around.health.snapshot().problems.items()
        finally:
            around.abandon.set()
        with pytest.raises(KeyRefused, match="put it back"):
            putting.result()
    assert found[0] == "[encryption]: create_data_key"
    assert found[1].endswith("cannot be read: FileNotFoundError; put it back")
    around.resources.close()
