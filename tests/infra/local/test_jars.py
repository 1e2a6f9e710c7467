"""The jars of the embedded stack: resolved, checked and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local.cache import CACHE_VARIABLE, cache_dir
from infra.local.errors import LocalStackError
from infra.local.identity import identify
from infra.local.jars import is_fetched, kafka_jars
from infra.runtime.java import Java
from tests.infra.local.processes import child, eventually, printed

FAKE_JAVA = Java(executable=Path("/no/java/bin/java"), version="17")
RESOLVER = """
import pathlib, sys
package, folder = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(package + "\\n")
jars = pathlib.Path(folder) / "jars"
jars.mkdir(parents=True)
for name in ("org.apache.kafka_kafka_2.13-4.3.1.jar", "org.slf4j_slf4j-api-1.7.36.jar"):
    (jars / name).write_bytes(b"jar")
"""


class TestJars:
    def test_the_cache_folder_can_be_chosen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(CACHE_VARIABLE, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_dir() == tmp_path / "xdg" / "kafka-segment-replicator"
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine"))
        assert cache_dir() == tmp_path / "mine"

    def test_concurrent_runs_fetch_once_and_later_runs_never(self, tmp_path: Path) -> None:
        cache, calls = tmp_path / "cache", tmp_path / "calls"
        cache.mkdir()
        assert not is_fetched(cache=cache)
        source = f"""
            import json
            from pathlib import Path
            from infra.local.jars import kafka_jars
            from infra.runtime.java import Java
            java = Java(executable=Path("/no/java/bin/java"), version="17")
            jars = kafka_jars(java, cache=Path({str(cache)!r}), resolver={RESOLVER.format(calls=str(calls))!r})
            print(json.dumps(dict(jars=[str(jar) for jar in jars])), flush=True)
        """
        with child(source) as one, child(source) as other:
            answers = printed(one), printed(other)
        assert calls.read_text(encoding="ascii").splitlines() == ["org.apache.kafka:kafka_2.13:4.3.1"]
        assert is_fetched(cache=cache)
        found = kafka_jars(FAKE_JAVA, cache=cache, resolver="raise SystemExit(1)")
        assert answers == ({"jars": [str(jar) for jar in found]},) * 2
        names = [jar.name for jar in found]
        assert "org.apache.kafka_kafka_2.13-4.3.1.jar" in names
        assert any(name.startswith("scala-library-") for name in names)
        assert "org.slf4j_slf4j-api-1.7.36.jar" not in names  # replaced by PySpark's
        assert sum(name.startswith("slf4j-api-2") for name in names) == 1
        assert sorted(entry.name for entry in cache.iterdir()) == ["kafka-4.3.1", "kafka-4.3.1.lock"]

    def test_a_failed_fetch_says_why_and_leaves_nothing_half_done(self, tmp_path: Path) -> None:
        with pytest.raises(LocalStackError, match=r"(?s)cannot fetch Kafka 4.3.1.*ended with 7.*log: .*\n  no network"):
            kafka_jars(FAKE_JAVA, cache=tmp_path, resolver="import sys; print('no network'); sys.exit(7)")
        names = sorted(entry.name for entry in tmp_path.iterdir())
        assert names == ["kafka-4.3.1.fetch.log", "kafka-4.3.1.lock"]

    def test_a_fetcher_that_is_killed_takes_the_resolver_with_it(self, tmp_path: Path) -> None:
        source = f"""
            from pathlib import Path
            from infra.local.jars import kafka_jars
            from infra.runtime.java import Java
            import os
            resolver = "import os, signal; print('pid', os.getpid(), flush=True); signal.pause()"
            java = Java(executable=Path("/no/java/bin/java"), version="17")
            kafka_jars(java, cache=Path({str(tmp_path)!r}), resolver=resolver)
        """
        log = tmp_path / "kafka-4.3.1.fetch.log"
        with child(source) as process:
            assert eventually(lambda: log.exists() and "pid" in log.read_text(encoding="utf-8"))
            resolver = identify(int(log.read_text(encoding="utf-8").split()[1]))
            assert resolver is not None
            process.kill()
            assert eventually(lambda: not resolver.alive())
            assert eventually(lambda: not list(tmp_path.glob("*.partial-*")))

    def test_a_version_is_not_a_path(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="not a Kafka version"):
            kafka_jars(FAKE_JAVA, version="../4.3.1", cache=tmp_path)
