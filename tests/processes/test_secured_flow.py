"""The whole flow over each way to secure a connection: egress and ingress as processes of their own, status, verify and
restore. Tokens are valid for seconds, and the flow runs for several of these periods; the broker ends a connection with
its token."""

from __future__ import annotations

import base64
import re
import ssl
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.process import Supervisor
from infra.local.stack import LocalStack
from replicator.terminal.output import USAGE
from tests.conftest import FEW_THREADS
from tests.infra.listeners import MTLS, SCRAM, TOKENS
from tests.infra.secured_stack import CONFIG, KEY_PASSWORD, PASSWORD, WAYS, Security, create_user
from tests.infra.token_makers import MADE, SECONDS
from tests.processes.flow import Flow
from tests.processes.harness import A, B, Site, Worker
from tests.processes.s3_proxy import ANY, Answer, proxied
from tests.processes.traffic import EPOCH_MS, Draft

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE = timedelta(seconds=90)
PERIODS = 3
COMMAND_SECONDS = 300.0
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
            while not _have_renewed(made, PERIODS, processes=2):
                words = flow.produce(drafts(300 * round_, 300))
                flow.wait_for(words, PATIENCE)
                round_ += 1
        for worker in (egress, ingress):
            site.wait(f"{worker.name} is ready", lambda w=worker: bool(w.readiness().get("ready")))  # type: ignore[misc]
            assert ("native_records_off" in _log(worker)) is (native == "off")
            code, text = run(worker, "status")
            assert code == 0, text
        code, text = run(egress, "verify", "--source", str(site.folder / "egress.toml"))
        assert code == 0, text
        copy = f"{flow.topic}.restored"
        code, text = run(egress, "restore", flow.topic, "--rename", f"{flow.topic}={copy}")
        assert code == 0, text
        site.stop(egress, ingress)
        flow.judge_target(rewinds=0)
    printed = "".join(_log(worker) for worker in (egress, ingress))
    assert PASSWORD not in printed
    assert KEY_PASSWORD not in printed
    assert not re.search(r"token_not_made|partition_stopped", printed)


@pytest.mark.parametrize("way", [SCRAM, TOKENS])
def test_nothing_that_a_process_says_has_a_secret(
    way: str, secured_site: Site, security: Security, tmp_path: Path
) -> None:
    """At debug level, also of the Kafka client; while all is well, and while bucket and cluster refuse."""
    site, made = secured_site, tmp_path / "made"
    planted = {"S3_SECRET": "planted-s3-secret", "S3_TOKEN": "planted-s3-token", "METRICS_PASSWORD": "planted-metrics"}
    site.environment.update({MADE: str(made), **planted})
    keys = {"access_key_id": "AKID", "secret_access_key": "${S3_SECRET}", "session_token": "${S3_TOKEN}"}
    tls = security.authority.sign("metrics")
    loud = {
        "log": {"level": "debug"},
        "metrics": {
            "listen": "0",
            "tls_cert": str(tls.certificate),
            "tls_key": str(tls.key),
            "username": "prometheus",
            "password": "${METRICS_PASSWORD}",
        },
    }
    printed: list[str] = []
    with Flow(site, partitions=2) as flow, proxied(site.stack.moto.endpoint_url) as proxy:
        kafka = {**tables(site, security, A, way), "debug": "security,conf,broker,protocol,eos,cgrp"}
        if way == SCRAM:  # with a key, too, which the broker does not ask for there
            kafka |= {name: value for name, value in tables(site, security, A, MTLS).items() if name.startswith("ssl.")}
        egress = site.egress("egress", {flow.topic: {}}, kafka=kafka, s3=keys, endpoint_url=proxy.endpoint_url)
        egress.tables = {**egress.tables, **loud}
        egress.start()
        flow.produce(drafts(0, 300))
        flow.wait_for_archive(PATIENCE)
        printed += [*_pages(egress, security), *(run(egress, *command)[1] for command in COMMANDS)]
        proxy.break_(ANY, Answer(403, "SignatureDoesNotMatch"))
        flow.produce(drafts(300, 300))
        site.wait("a refusal of the bucket", lambda: "SignatureDoesNotMatch" in _log(egress), PATIENCE)
        printed += _pages(egress, security)
        proxy.heal()
        flow.wait_for_archive(PATIENCE)
        site.stop(egress)
        if way == SCRAM:
            site.environment |= {"SASL_PASSWORD": "planted-wrong", "KEY_PASSWORD": "planted-wrong"}
            printed.append(_refused(egress, USAGE, "ssl.key.password fits it"))  # the key is loaded first
            site.environment["KEY_PASSWORD"] = KEY_PASSWORD
            printed.append(_refused(egress, 1, "correct sasl.username, sasl.password and sasl.mechanism"))
    text = "\n".join([*printed, _log(egress)])
    assert "replicator_ready" in text
    assert "SignatureDoesNotMatch" in text
    assert "kafka_client" in text
    tokens = [line.split()[2] for line in made.read_text("utf-8").splitlines()] if made.exists() else []
    assert bool(tokens) is (way == TOKENS)
    secrets = [PASSWORD, KEY_PASSWORD, "planted-wrong", *planted.values(), *tokens]
    assert [one for one in secrets if one in text] == []


def _refused(worker: Worker, wanted: int, remedy: str) -> str:
    """What a service prints that ends at its start."""
    code, text = run(worker, "egress")
    assert code == wanted, text
    assert remedy in text
    assert "Traceback" not in text
    return text


COMMANDS = (("status",), ("status", "--json"), ("config", "show"), ("config", "explain"))


def _pages(worker: Worker, security: Security) -> list[str]:
    """What its listener says now."""
    trusting = ssl.create_default_context(cafile=str(security.authority.certificate))
    host, port = worker.address
    login = base64.b64encode(b"prometheus:planted-metrics").decode()
    pages = []
    for path in ("/metrics", "/readyz", "/healthz", "/other"):
        request = urllib.request.Request(f"https://{host}:{port}{path}", headers={"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, timeout=10, context=trusting) as answer:
                pages.append(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                pages.append(error.read().decode())
    return pages


def run(worker: Worker, *command: str) -> tuple[int, str]:
    """A command with the file of `worker`: its exit code, and what it printed."""
    return worker.run(*command, seconds=COMMAND_SECONDS)


def _log(worker: Worker) -> str:
    return worker.log.read_text(encoding="utf-8")


def _have_renewed(made: Path, periods: int, *, processes: int) -> bool:
    """Whether at least `processes` processes made tokens whose ends are `periods` validity periods apart."""
    ends: dict[str, list[float]] = defaultdict(list)
    for line in made.read_text(encoding="utf-8").splitlines():
        process, ends_at, _ = line.split()
        ends[process].append(float(ends_at))
    long_enough = [one for one in ends.values() if max(one) - min(one) >= periods * SECONDS]
    return len(long_enough) >= processes
