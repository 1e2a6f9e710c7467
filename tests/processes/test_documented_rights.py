"""Every role with exactly the rights that docs/rights.md gives it; and without one of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from infra.local.aws import create_bucket_with_queue
from tests.processes import judge
from tests.processes.flow import RUN, Flow
from tests.processes.harness import A, B
from tests.processes.rights import LEDGER, RESTORES, TOPICS, Grant, Rights, documented
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration

PATIENCE, HEALS_WITHIN = timedelta(seconds=60), timedelta(seconds=90)
SELDOM = {Grant("egress", TOPICS, "DESCRIBE_CONFIGS"), Grant("ingress", LEDGER, "WRITE")}
"""Needed only where a segment stands that differs (tests/egress/test_egress_rights.py takes it away), and where
something is created."""
AT_START = {*SELDOM, Grant("ingress", LEDGER, "READ")}  # and not while nothing changes


def drafts(start: int, count: int, partitions: int) -> list[Draft]:
    return [Draft(n % partitions, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(start, start + count)]


@pytest.mark.long
def test_the_whole_flow_with_the_printed_rights(site: Site) -> None:
    """egress, sync, ingress, compaction and gc; then status, verify and restore, each under a principal that has what
    `replicator rights` prints for it, and no more."""
    other, queue = f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(site.stack.moto.endpoint_url, other, queue)
    with Flow(site, partitions=2) as flow:
        at_source = site.egress("asked-egress", {flow.topic: {}})
        at_target = site.ingress("asked-ingress", {"topic": flow.topic, "destination_topic": flow.target})
        by_who = {
            who: Rights(site, region, who, printed=roles, like=like)
            for who, region, roles, like in (
                ("egress", A, ["egress"], at_source),
                ("ingress", B, ["ingress"], at_target),
                ("sync, compact, gc, verify without a cluster", A, ["sync", "compact", "gc"], at_source),
                ("status, where egress runs", A, ["status"], at_source),
                ("status, where ingress runs", B, ["status"], at_target),
                ("verify --source", A, ["verify"], at_source),
                ("verify --target", B, ["verify"], at_target),
            )
        }
        nothing = by_who["sync, compact, gc, verify without a cluster"]
        egress = site.egress("egress", {flow.topic: {}}, kafka=by_who["egress"].kafka).start()
        sync = site.sync("sync", other, kafka=nothing.kafka).start()
        ingress = site.ingress(
            "ingress", {"topic": flow.topic}, bucket=other, queue=queue, kafka=by_who["ingress"].kafka
        ).start()
        flow.produce(drafts(0, 300, 2))
        flow.wait_for_archive(PATIENCE)
        words = flow.produce(drafts(300, 300, 2))
        flow.wait_for_archive(PATIENCE)
        flow.wait_for(words, PATIENCE)
        for worker in (egress, sync, ingress):
            site.wait(f"{worker.name} is ready", lambda w=worker: bool(w.readiness().get("ready")))  # type: ignore[misc]

        for who, worker in {"status, where egress runs": egress, "status, where ingress runs": ingress}.items():
            code, text = by_who[who].run(worker, "status")
            assert code == 0, text
        beside: tuple[str, ...] = ("--source", str(by_who["verify --source"].file(egress)))
        beside += ("--target", str(by_who["verify --target"].file(ingress)), "--rename", f"{flow.topic}={flow.target}")
        code, text = nothing.run(egress, "verify", *beside)
        assert code == 0, text
        code, text = nothing.run(site.compaction("compaction"), "compact", "--once")
        assert code == 0, text
        code, text = nothing.run(site.gc("gc"), "gc", "--covered")
        assert code == 0, text

        copy = f"{flow.topic}.restored"
        restorer = Rights(site, B, "restore", printed=["restore", "--topic", copy], like=at_source)
        code, text = restorer.run(egress, "restore", flow.topic, "--rename", f"{flow.topic}={copy}")
        assert code == 0, text
        site.stop(egress, sync, ingress)
        flow.judge_target(rewinds=0)
        restored = judge.read_topic(site.bootstrap(B), copy, flow.partitions)
        for partition, log in flow.source().items():
            judge.judge_target(log.records, restored[partition].records, rewinds=0, run=RUN)


class Service:
    """egress or ingress, under a principal that loses a right and gets it back; the other one has all of them."""

    def __init__(self, site: Site, flow: Flow, who: str, *, missing: Grant | None = None) -> None:
        self.site, self.flow, self.who = site, flow, who
        self.rights = Rights(
            site, A if who == "egress" else B, who, topics=[flow.topic], destinations=[flow.target], missing=missing
        )
        self.egress = site.egress("egress", {flow.topic: {}}, kafka=self.rights.kafka if who == "egress" else None)
        self.ingress = site.ingress(
            "ingress", {"topic": flow.topic}, kafka=self.rights.kafka if who == "ingress" else None
        )
        self.limited, self.other = (self.egress, self.ingress) if who == "egress" else (self.ingress, self.egress)
        self._sent = 0

    def produce(self, count: int = 200) -> Sequence[Draft]:
        words = self.flow.produce(drafts(self._sent, count, self.flow.partitions))
        self._sent += count
        return words

    def await_cause(self, grant: Grant) -> None:
        """Until `/readyz` names the resource and the operation, or the process has ended with a line that does."""
        names = self.rights.names(grant)

        def is_named() -> bool:
            code = self.limited.exit_code
            if code is not None:
                assert code == 1, self.limited.explain(f"ended with {code}")
                return names_it(grant, names, self.limited.log.read_text(encoding="utf-8").splitlines()[-1])
            found = self.limited.readiness()
            reasons = [*found.get("stopped", {}).items(), *found.get("problems", {}).items()]
            named = any(names_it(grant, names, f"{subject}: {reason}") for subject, reason in reasons)
            assert not (named and found["ready"])
            return named

        self.site.wait(f"the cause of a refusal, {grant}", is_named, PATIENCE)

    def heal(self, grant: Grant) -> None:
        """With the right again; a process that had ended is started again, as its supervisor would."""
        self.rights.allow(grant)
        if self.limited.exit_code is not None:
            self.limited.start(environment={})

    def judge(self, words: Sequence[Draft]) -> None:
        """Nothing is lost, nothing comes twice, and `/readyz` says so."""
        self.flow.wait_for_archive(HEALS_WITHIN)
        self.flow.wait_for(words, HEALS_WITHIN)
        for worker in (self.egress, self.ingress):
            self.site.wait(f"{worker.name} is ready", lambda w=worker: bool(w.readiness().get("ready")), HEALS_WITHIN)  # type: ignore[misc]
        self.site.stop(self.egress, self.ingress)
        self.flow.judge_target(rewinds=0)
        self.flow.judge_archive()


def names_it(grant: Grant, names: Collection[str], text: str) -> bool:
    """The resource, and the operation as what to allow on it."""
    remedy = re.compile(rf"allow [\w, ]*\b{grant.operation}\b")
    return any(name in text for name in names) and remedy.search(text) is not None


def services(operations: Collection[str], seldom: Collection[Grant] = SELDOM) -> list[Any]:
    grants = [g for g in documented() if g.who in ("egress", "ingress") and g.operation in operations]
    found = [g for g in grants if g not in seldom]
    return [pytest.param(g, id=str(g)) for g in found]


@pytest.mark.long
@pytest.mark.parametrize("grant", services(["READ", "WRITE"], AT_START))
def test_a_right_that_is_lost_while_it_runs(site: Site, grant: Grant) -> None:
    with Flow(site, partitions=2) as flow:
        service = Service(site, flow, grant.who)
        service.other.start()
        service.limited.start(environment={})
        flow.wait_for(service.produce(), PATIENCE)
        service.rights.forbid(grant)
        words = service.produce()
        service.await_cause(grant)
        service.heal(grant)
        service.judge(words)


@pytest.mark.long
@pytest.mark.parametrize("grant", services(["READ", "WRITE", "DESCRIBE_CONFIGS"]))
def test_a_right_that_is_lost_while_it_is_stopped(site: Site, grant: Grant) -> None:
    with Flow(site, partitions=2) as flow:
        service = Service(site, flow, grant.who)
        service.other.start()
        service.limited.start(environment={})
        flow.wait_for(service.produce(), PATIENCE)
        service.limited.stop()
        service.rights.forbid(grant)
        words = service.produce()
        service.limited.start(environment={})
        service.await_cause(grant)
        service.heal(grant)
        service.judge(words)


@pytest.mark.long
@pytest.mark.parametrize("grant", services(["CREATE"]))
def test_a_right_that_was_never_given(site: Site, grant: Grant) -> None:
    with Flow(site, partitions=2) as flow:
        service = Service(site, flow, grant.who, missing=grant)
        service.other.start()
        words = service.produce()
        service.limited.start(environment={})
        service.await_cause(grant)
        service.heal(grant)
        service.judge(words)


@pytest.mark.long
def test_with_everything_off_nothing_is_created_or_altered(site: Site) -> None:
    """Under a principal that may neither, on topics that exist, and without the ledger."""
    off: Mapping[str, Any] = {"create_topics": False, "add_partitions": False, "configs": "off", "acls": "off"}
    with Flow(site, partitions=2) as flow:
        rights = Rights(site, B, "ingress", topics=[flow.topic], destinations=[flow.target])
        egress = site.egress("egress", {flow.topic: {}}).start()
        # its ACLs are left alone: it would deny the other principal, who is not its own, to write to what it created
        first = site.ingress("first", {"topic": flow.topic}, acls="off").start()
        flow.wait_for(flow.produce(drafts(0, 200, 2)), PATIENCE)
        site.stop(first)
        for grant in documented():
            if grant.who == "ingress" and (
                grant.operation in ("CREATE", "ALTER", "ALTER_CONFIGS") or grant.resource == LEDGER
            ):
                rights.forbid(grant)
        ingress = site.ingress("ingress", {"topic": flow.topic}, kafka=rights.kafka, **off).start()
        flow.wait_for(flow.produce(drafts(200, 200, 2)), PATIENCE)
        site.wait("ingress is ready", lambda: bool(ingress.readiness().get("ready")))
        site.stop(egress, ingress)
        flow.judge_target(rewinds=0)


# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivered:
    """A flow that has come to rest, and what ran it."""

    site: Site
    flow: Flow
    egress: Worker
    ingress: Worker

    def rights(self, who: str, missing: Grant, word: str) -> Rights:
        region = A if who in ("verify --source", "status, where egress runs") else B
        named: Mapping[str, Any] = {"topics": [self.flow.topic], "destinations": [self.flow.target]}
        return Rights(self.site, region, who, **named, missing=missing, word=word)

    def run(self, rights: Rights) -> tuple[int, str]:
        """The command that these are the rights of."""
        renamed = ("--rename", f"{self.flow.topic}={self.flow.target}")
        match rights.who:
            case "status, where egress runs":
                return rights.run(self.egress, "status")
            case "status, where ingress runs":
                return rights.run(self.ingress, "status")
            case "verify --source":
                return self.egress.run("verify", "--no-archive", "--source", str(rights.file(self.egress)))
            case "verify --target":
                target = str(rights.file(self.ingress))
                return self.egress.run("verify", "--no-archive", "--target", target, *renamed)
            case who:
                raise AssertionError(who)


@pytest.fixture
def delivered(site: Site) -> Iterator[Delivered]:
    with Flow(site, partitions=2) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}).start()
        flow.wait_for(flow.produce(drafts(0, 200, 2)), PATIENCE)
        yield Delivered(site, flow, egress, ingress)
        site.stop(egress, ingress)


def of(who: str) -> Sequence[Grant]:
    found = [grant for grant in documented() if grant.who == who]
    assert found, f"the page says nothing of {who}"
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "who", ["status, where egress runs", "status, where ingress runs", "verify --source", "verify --target"]
)
def test_a_command_without_one_of_its_rights(delivered: Delivered, who: str) -> None:
    """One after the other: it fails with the right's name, and succeeds with it."""
    for number, grant in enumerate(of(who)):
        rights = delivered.rights(who, grant, f"{number}")
        code, text = delivered.run(rights)
        assert code in (1, 3), f"without {grant}: {text}"
        assert names_it(grant, rights.names(grant), text), f"without {grant}: {text}"
        rights.allow(grant)
        code, text = delivered.run(rights)
        assert code == 0, f"with {grant}: {text}"


@pytest.mark.long
def test_restore_without_one_of_its_rights(delivered: Delivered) -> None:
    flow = delivered.flow
    for number, grant in enumerate(of("restore")):
        copy = f"{flow.topic}.restored{number}"
        rights = Rights(delivered.site, B, "restore", destinations=[copy], missing=grant, word=f"restore{number}")
        command = ("restore", flow.topic, "--rename", f"{flow.topic}={copy}")
        code, text = rights.run(delivered.egress, *command)
        if grant == Grant("restore", RESTORES, "DESCRIBE_CONFIGS"):  # of a topic that was there before
            assert code == 0, text
            code, text = rights.run(delivered.egress, *command)
        assert code in (1, 3), f"without {grant}: {text}"
        assert names_it(grant, rights.names(grant), text), f"without {grant}: {text}"
        rights.allow(grant)
        code, text = rights.run(delivered.egress, *command)
        assert code == 0, f"with {grant}: {text}"
        restored = judge.read_topic(delivered.site.bootstrap(B), copy, flow.partitions)
        for partition, log in flow.source().items():
            judge.judge_target(log.records, restored[partition].records, rewinds=0, run=RUN)
