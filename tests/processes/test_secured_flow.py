"""The whole flow over each way to secure a connection: egress and ingress as processes of their own, status, verify and
restore. With tokens that live for seconds, for several lives of one; the broker ends a connection with its token."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.process import Supervisor
from infra.local.stack import LocalStack
from tests.conftest import FEW_THREADS
from tests.infra.listeners import TOKENS
from tests.infra.secured_stack import CONFIG, KEY_PASSWORD, PASSWORD, WAYS, Security, create_user
from tests.infra.token_makers import MADE, SECONDS
from tests.processes.flow import Flow
from tests.processes.harness import A, B, Site, Worker
from tests.processes.traffic import EPOCH_MS, Draft

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(seconds=90)
LIVES = 3
SECRETS = {"sasl.password": ("SASL_PASSWORD", PASSWORD), "ssl.key.password": ("KEY_PASSWORD", KEY_PASSWORD)}


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    return Security(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured_stack(
    security: Security, run_stack: Callable[..., AbstractContextManager[LocalStack]]
) -> Iterator[LocalStack]:
    with run_stack(
        listeners=security.listeners,
        broker_config={**FEW_THREADS, **CONFIG},
        needed=lambda item: item.path == Path(__file__),
    ) as stack:
        for broker in stack.brokers.values():
            create_user(broker)
        yield stack


@pytest.fixture
def secured_site(secured_stack: LocalStack, moved_metrics: set[str], unique: Callable[[str], str]) -> Iterator[Site]:
    with (
        closing(Supervisor(log=secured_stack.log_dir / "secured.log")) as owner,
        Site(secured_stack, owner, moved_metrics, unique("secured")) as site,
    ):
        yield site


def drafts(start: int, count: int) -> list[Draft]:
    return [Draft(n % 2, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(start, start + count)]


def tables(site: Site, security: Security, region: str, way: str) -> Mapping[str, str]:
    """Of `[kafka]`: secrets are in the environment of the site's processes."""
    given = security.properties(site.stack.brokers[region], way)
    for name, (variable, value) in SECRETS.items():
        if name in given:
            given[name] = f"${{{variable}}}"
            site.environment[variable] = value
    return given


@pytest.mark.parametrize(("way", "native"), [*((way, "on") for way in WAYS), (TOKENS, "off")])
def test_records_cross(way: str, native: str, secured_site: Site, security: Security, tmp_path: Path) -> None:
    site = secured_site
    made = tmp_path / "made"
    site.environment.update({MADE: str(made), "REPLICATOR_NATIVE": native})
    with Flow(site, partitions=2) as flow:
        egress = site.egress("egress", {flow.topic: {}}, kafka=tables(site, security, A, way)).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}, kafka=tables(site, security, B, way)).start()
        words: Sequence[Draft] = flow.produce(drafts(0, 300))
        flow.wait_for(words, PATIENCE)
        if way == TOKENS:
            round_ = 1
            while not _have_lived(made, LIVES, processes=2):
                words = flow.produce(drafts(300 * round_, 300))
                flow.wait_for(words, PATIENCE)
                round_ += 1
        for worker in (egress, ingress):
            site.wait(f"{worker.name} is ready", lambda w=worker: bool(w.readiness().get("ready")))  # type: ignore[misc]
            assert ("native_records_off" in _log(worker)) is (native == "off")
            code, text = worker.run("status")
            assert code == 0, text
        code, text = egress.run("verify", "--source", str(site.folder / "egress.toml"))
        assert code == 0, text
        copy = f"{flow.topic}.restored"
        code, text = egress.run("restore", flow.topic, "--rename", f"{flow.topic}={copy}")
        assert code == 0, text
        site.stop(egress, ingress)
        flow.judge_target(rewinds=0)
    said = "".join(_log(worker) for worker in (egress, ingress))
    assert PASSWORD not in said
    assert KEY_PASSWORD not in said
    assert not re.search(r"token_not_made|partition_stopped", said)


def _log(worker: Worker) -> str:
    return worker.log.read_text(encoding="utf-8")


def _have_lived(made: Path, lives: int, *, processes: int) -> bool:
    """Whether so many processes made tokens that end so many lives of a token apart."""
    ends: dict[str, list[float]] = defaultdict(list)
    for line in made.read_text(encoding="utf-8").splitlines():
        process, ends_at = line.split()
        ends[process].append(float(ends_at))
    long_enough = [one for one in ends.values() if max(one) - min(one) >= lives * SECONDS]
    return len(long_enough) >= processes
