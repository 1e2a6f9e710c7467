"""A configuration file that changes under a service: content counts, what is bad is named once, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from formats.errors import ConfigError
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from replicator.config import Config, SettingsFile
from replicator.config.reload import EGRESS
from replicator.services.reload import SUBJECT, ConfigReloader

HEAD = """
region = "us"
[kafka]
"bootstrap.servers" = "one:9092"
[s3]
bucket = "archive"
[egress.topics."orders"]
"""
PAYMENTS = '[egress.topics."payments"]\n'
BAD = "[egress"
OTHER_CLUSTER = HEAD.replace("one:", "two:")


class Bench:
    def __init__(self, path: Path) -> None:
        self.path, self.health = path, Health()
        self.applied: list[Config] = []
        self.write(HEAD)
        file = SettingsFile(path)
        self.reloader = ConfigReloader(
            file=file,
            running=file.load(),
            reads=EGRESS,
            apply=self.applied.append,
            health=self.health,
            stop=Stop(),
            check=self.check,
        )
        self.poll()

    @staticmethod
    def check(config: Config) -> None:
        egress = config.egress
        if egress is not None and any(str(rule.pattern) == "forbidden" for rule in egress.topics):
            raise ConfigError(["egress.topics: forbidden"], source="a check")

    def write(self, text: str) -> None:
        """As an editor does: another file takes its place."""
        new = self.path.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self.path)

    def poll(self, times: int = 2) -> None:
        for _ in range(times):
            self.reloader.poll()

    @property
    def topics(self) -> list[str]:
        """In force now."""
        egress = self.reloader.running.egress
        return [] if egress is None else [str(rule.pattern) for rule in egress.topics]

    @property
    def problem(self) -> str:
        return self.health.snapshot().problems.get(SUBJECT, "")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "replicator.toml")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level("INFO", "replicator.services.reload")
    return lambda: [record.message for record in caplog.records]


def test_a_file_that_stays_as_it_is_changes_nothing(bench: Bench, logged: Callable[[], list[str]]) -> None:
    bench.poll(5)
    assert (bench.applied, bench.problem, logged()) == ([], "", [])


def test_another_content_is_applied_once_it_was_seen_twice(bench: Bench) -> None:
    bench.write(HEAD + PAYMENTS)
    bench.poll(1)
    assert bench.applied == [], "it may be half written"
    bench.poll(1)
    assert bench.topics == ["orders", "payments"]
    bench.poll(3)
    assert bench.applied == [bench.reloader.running]


def test_a_request_is_obeyed_at_the_next_poll(bench: Bench, logged: Callable[[], list[str]]) -> None:
    bench.write(HEAD + PAYMENTS)
    bench.reloader.request()
    bench.poll(1)
    assert bench.topics == ["orders", "payments"]
    bench.reloader.request()
    bench.poll(1)
    assert logged() == ["config_reloaded", "config_reloaded"]
    assert len(bench.applied) == 1


def test_a_file_written_anew_with_the_same_content_is_the_same(bench: Bench, logged: Callable[[], list[str]]) -> None:
    bench.write(HEAD)
    bench.poll(3)
    assert logged() == []


def test_a_change_between_the_start_and_the_first_poll_is_not_missed(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "replicator.toml")
    reloader = ConfigReloader(
        file=bench.reloader.file,
        running=bench.reloader.running,
        reads=EGRESS,
        apply=bench.applied.append,
        health=bench.health,
        stop=Stop(),
    )
    bench.write(HEAD + PAYMENTS)
    reloader.poll()
    reloader.poll()
    assert len(bench.applied) == 1


def test_a_link_that_leads_elsewhere_is_followed(tmp_path: Path) -> None:
    """As Kubernetes updates a ConfigMap: the file is a link through a directory that is a link, which is replaced."""
    for name, text in (("first", HEAD), ("second", HEAD + PAYMENTS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "replicator.toml").write_text(text, encoding="utf-8")
    (tmp_path / "..data").symlink_to("first")
    path = tmp_path / "mounted.toml"
    path.symlink_to("..data/replicator.toml")
    reloader = ConfigReloader(
        file=SettingsFile(path),
        running=SettingsFile(path).load(),
        reads=EGRESS,
        apply=(applied := list[Config]()).append,
        health=Health(),
        stop=Stop(),
    )
    (tmp_path / "..new").symlink_to("second")
    (tmp_path / "..new").replace(tmp_path / "..data")
    reloader.poll()
    reloader.poll()
    assert len(applied) == 1


def test_a_bad_file_keeps_the_settings_and_is_named_until_it_is_good(
    bench: Bench, logged: Callable[[], list[str]]
) -> None:
    bench.write(BAD)
    bench.poll(5)
    bench.reloader.request()
    bench.poll(5)
    assert logged() == ["config_not_applied"]
    assert f"{bench.path}: is not TOML" in bench.problem
    assert "The settings of before stay in force: correct the file" in bench.problem
    assert not bench.health.snapshot().is_ready
    bench.write(HEAD + PAYMENTS)
    bench.poll()
    assert bench.problem == ""
    assert bench.topics == ["orders", "payments"]


def test_a_file_that_is_gone_is_as_bad_and_comes_back(bench: Bench) -> None:
    bench.path.unlink()
    bench.poll(1)
    assert bench.problem == "", "an editor may be about to write it"
    bench.poll(1)
    assert "there is no such file" in bench.problem
    bench.write(HEAD)
    bench.poll()
    assert (bench.problem, bench.applied) == ("", [])


def test_another_mistake_is_another_problem(bench: Bench, logged: Callable[[], list[str]]) -> None:
    for text in (BAD, HEAD + "nothing = 1\n", BAD):
        bench.write(text)
        bench.poll()
    assert logged() == ["config_not_applied"] * 3


def test_what_needs_a_restart_is_named_and_not_applied(bench: Bench, logged: Callable[[], list[str]]) -> None:
    bench.write(OTHER_CLUSTER + PAYMENTS)
    bench.poll(4)
    assert bench.topics == ["orders", "payments"]
    assert bench.problem == 'needs a restart: kafka."bootstrap.servers"'
    assert bench.reloader.running.cluster.servers == "one:9092"
    assert logged() == ["config_reloaded", "config_not_applied"]
    bench.write(HEAD)
    bench.poll()
    assert bench.problem == "", "the change was taken back"
    assert bench.topics == ["orders"]


def test_no_value_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write(HEAD.replace("one:9092", "secret:1") + "[egress]\nexclude = ['hidden']\n")
    bench.poll()
    texts = [str(vars(record)) for record in caplog.records]
    assert texts
    assert [text for text in texts if "secret:1" in text or "hidden" in text] == []


def test_a_file_refuses_as_loading_does(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        SettingsFile(tmp_path / "none.toml").load()


FLOWS = """
[clusters.us.kafka]
"bootstrap.servers" = "one:9092"
[clusters.us.s3]
bucket = "archive"
[clusters.eu.kafka]
"bootstrap.servers" = "${ONLY_AT_EU}:9092"
[clusters.eu.s3]
bucket = "copy"
[clusters.eu.sqs]
queue = "events"
[flows."us->eu"]
topics = ["orders"]
"""


def test_a_flow_that_changes_is_taken_over_by_its_source(tmp_path: Path) -> None:
    """The process knows the variables of its own region only."""
    path = tmp_path / "flows.toml"
    path.write_text(FLOWS, encoding="utf-8")
    file = SettingsFile.of(path, "us")
    applied: list[Config] = []
    reloader = ConfigReloader(
        file=file, running=file.load(), reads=EGRESS, apply=applied.append, health=(health := Health()), stop=Stop()
    )

    def now(text: str) -> list[str]:
        path.write_text(text, encoding="utf-8")
        reloader.poll()
        reloader.poll()
        egress = reloader.running.egress
        return [] if egress is None else [str(rule.pattern) for rule in egress.topics]

    assert now(FLOWS.replace('["orders"]', '["orders", "payments"]')) == ["orders", "payments"]
    assert len(applied) == 1
    assert now(FLOWS.replace('"copy"', '"another"').replace('["orders"]', '["orders", "payments"]')) == [
        "orders",
        "payments",
    ]
    assert len(applied) == 1, "what only another region uses is none of it"
    assert not health.snapshot().problems.get(SUBJECT)
    assert now(FLOWS.replace("clusters.us.", "clusters.useast.")) == ["orders", "payments"]
    assert "there is no cluster 'us'" in health.snapshot().problems[SUBJECT]
    assert now(FLOWS.replace("us->eu", "us->eur")) == ["orders", "payments"]
    assert "there is no cluster 'eur' (did you mean 'eu'?)" in health.snapshot().problems[SUBJECT]
    assert now(FLOWS + "enabled = false") == ["orders", "payments"]
    assert health.snapshot().problems[SUBJECT] == "needs a restart: egress", "the last flow is gone"
    assert now(FLOWS) == ["orders"]
    assert not health.snapshot().problems.get(SUBJECT)


def test_what_a_check_of_the_service_refuses_is_not_applied(bench: Bench) -> None:
    bench.write(HEAD + '[egress.topics."forbidden"]\n')
    bench.poll()
    assert (bench.topics, bench.applied) == (["orders"], [])
    assert bench.problem.endswith("nothing of it is applied: egress.topics: forbidden")
    bench.write(HEAD + PAYMENTS)
    bench.poll()
    assert (bench.topics, bench.problem) == (["orders", "payments"], "")
