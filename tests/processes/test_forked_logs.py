"""A broker loses the tail of its logs while it is down, and gives the offsets to other records: real processes never
archive that as one log, say what happened, and go on as an operator chooses."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from infra.contracts.cluster import TopicPartition
from tests.infra.log_files import lose_tails
from tests.processes import judge
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, ROOT, A, B, Worker
from tests.processes.traffic import EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration

COMMAND_LIMIT = timedelta(seconds=120)


class Source:
    """Region a's topics: `adopted`, of whose two partitions one loses its tail, and `accepted`, which has one."""

    def __init__(self, site: Site, adopted: Flow, accepted: Flow) -> None:
        self.site, self.adopted, self.accepted = site, adopted, accepted
        self.forked = {TopicPartition(flow.topic, 0): 50 for flow in (adopted, accepted)}
        self.egress: Worker = site.egress("egress", {flow.topic: {} for flow in (adopted, accepted)})

    def produce(self, word: str, count: int) -> None:
        """To the partitions that fork. One call is a batch of its own, so that the log can be cut between two."""
        for partition in self.forked:
            drafts = [Draft(0, None, b"%s %d" % (word.encode(), n), (), EPOCH_MS + n) for n in range(count)]
            produce_all(self.site.bootstrap(A), partition.topic, drafts)

    def whole(self, first: int, count: int) -> None:
        """To the partition that does not fork."""
        drafts = [Draft(1, None, b"whole %d" % n, (), EPOCH_MS + n) for n in range(first, first + count)]
        produce_all(self.site.bootstrap(A), self.adopted.topic, drafts)

    def await_archive(self, ends: dict[str, dict[int, int]]) -> None:
        """`ends`: next offsets by place and partition."""
        for place, wanted in ends.items():
            self.site.wait(f"an archive of {place}", lambda p=place, w=wanted: self.site.archived(p, w))  # type: ignore[misc]

    def await_commits(self, ends: dict[str, dict[int, int]]) -> None:
        """Of what the log has lost without a commit, only records behind it can tell."""
        for topic, wanted in ends.items():
            self.site.wait(
                f"commits of {topic}",
                lambda t=topic, w=wanted: self.site.committed(A, self.site.egress_group, t, len(w)) == w,  # type: ignore[misc]
            )

    def await_hold(self) -> None:
        names = {f"{A}/{partition}" for partition in self.forked}

        def held() -> bool:
            answer = self.egress.readiness()
            return set(answer.get("stopped", ())) == names and not answer["ready"]

        self.site.wait("the forks in /readyz", held)
        for reason in self.egress.readiness()["stopped"].values():
            assert "which ends at 50 now" in reason
            assert "replicator adopt --fork" in reason
            assert "replicator gaps accept" in reason

    def run(self, *arguments: str) -> tuple[int, str]:
        """A command with the egress' own file: exit code, and all that it printed."""
        done = self._done(*arguments)
        return done.returncode, done.stdout + done.stderr

    def asked(self, *arguments: str) -> tuple[int, Any]:
        done = self._done(*arguments, "--json")
        return done.returncode, json.loads(done.stdout)

    def _done(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "replicator", *arguments, "--config", str(self.site.folder / "egress.toml")]
        return subprocess.run(
            command,
            env=dict(self.site.environment),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT.total_seconds(),
            check=False,
        )

    def archived(self, place: str, partition: int = 0) -> tuple[int, int]:
        """First and last offset; without a gap."""
        covered = self.site.ranges(place).get(partition, ())
        end = judge.archive_end(covered)
        judge.judge_archive(covered, start=covered[0][0], next_offset=end)
        return covered[0][0], end - 1

    def values(self, flow: Flow, partition: int = 0) -> list[str]:
        return [(record.value or b"").decode() for record in flow.read_target()[partition].records]


def numbered(word: str, start: int, end: int) -> list[str]:
    return [f"{word} {n}" for n in range(start, end)]


@pytest.mark.long
@pytest.mark.parametrize("meanwhile", ["stopped", "running", "grown"])
def test_a_forked_log(site: Site, meanwhile: str) -> None:
    """Egress is stopped meanwhile; it runs; it runs, and the log has grown past its position again."""
    with Flow(site, "adopted", partitions=2) as adopted, Flow(site, "accepted", partitions=1) as accepted:
        source = Source(site, adopted, accepted)
        for half in (0, 1):
            source.produce(f"old{half}", 50)
        source.whole(0, 20)
        source.egress.start()
        ingress = site.ingress(
            "ingress", {"topic": adopted.topic, "on_recreate": "follow"}, {"topic": accepted.topic}
        ).start()
        ends = {adopted.topic: {0: 100, 1: 20}, accepted.topic: {0: 100}}
        source.await_archive(ends)
        source.await_commits(ends)
        if meanwhile == "stopped":
            source.egress.stop()
        lose_tails(site.stack.brokers[A], source.forked)
        if meanwhile == "running":
            source.await_hold()
        source.produce("new", 80)
        source.whole(20, 10)
        if meanwhile == "stopped":
            code, answer = source.asked("status")
            assert code == 3
            seen = [p for p in answer["egress"]["problems"] if "leader epoch 0, which ends at 50 now" in p]
            assert len(seen) == 2, answer["egress"]["problems"]
            source.egress.start()
        source.await_hold()
        source.await_archive({adopted.topic: {1: 30}})  # its neighbour goes on

        source.egress.stop()
        source.egress.start()
        source.await_hold()
        assert source.archived(adopted.topic) == source.archived(accepted.topic) == (0, 99)
        code, answer = source.run("status")
        assert (code, f"replicator adopt --fork {adopted.topic}" in answer) == (3, True)
        assert f"replicator gaps accept {A}/{accepted.topic}/0 50-99" in answer
        code, answer = source.run("verify")
        assert (code, answer.count("has forked"), "2 of 3 are not as they should be" in answer) == (3, 2, True)

        code, answer = source.run("gaps", "accept", f"{A}/{accepted.topic}/0", "50-98", "--reason", "x", "--yes")
        assert (code, "what can be accepted is 50-99" in answer) == (1, True)
        wanted = ("gaps", "accept", f"{A}/{accepted.topic}/0", "50-99", "--reason", "power was lost")
        code, answer = source.run(*wanted)
        assert (code, "nothing was written" in answer) == (0, True)
        code, answer = source.run(*wanted, "--yes")
        assert (code, '"is_accepted": true' in answer) == (0, True)
        assert source.asked(*wanted, "--yes")[1]["written"] is False, "repeating it changes nothing"
        code, answer = source.run("adopt", accepted.topic, "--fork")
        assert (code, "no fork of its log is recorded" in answer) == (1, True)
        code, answer = source.asked("adopt", "--fork", adopted.topic)
        assert code == 0
        place = answer["place"]
        assert place.startswith(f"{adopted.topic}@")
        assert place.endswith("-fork1")

        source.await_archive({place: {0: 130}, accepted.topic: {0: 130}})
        source.whole(30, 5)
        source.await_archive({place: {1: 35}})
        assert source.archived(adopted.topic) == (0, 99)
        assert source.archived(adopted.topic, 1) == (0, 29)
        assert (source.archived(place), source.archived(place, 1)) == ((50, 129), (30, 34))
        assert source.archived(accepted.topic) == (0, 129)
        assert source.egress.readiness()["ready"]

        old = [*numbered("old0", 0, 50), *numbered("old1", 0, 50)]
        wanted_records = {adopted: [*old, *numbered("new", 0, 80)], accepted: [*old, *numbered("new", 50, 80)]}
        for flow, records in wanted_records.items():
            end = {flow: len(records) + (35 if flow is adopted else 0)}
            site.wait(f"all of {flow.target}", lambda f=flow, n=end[flow]: f.delivered() >= n)  # type: ignore[misc]
            assert source.values(flow) == records
        assert source.values(adopted, 1) == numbered("whole", 0, 35)
        for command in ("verify", "status", "gaps"):  # in this order: status shows what verify found last
            code, answer = source.run(command)
            assert code == 0, answer
        assert "accepted as missing (power was lost)" in answer
        site.stop(source.egress, ingress)
        keys = [key for key in site.keys() if key.startswith(f"{PREFIX}/{A}/_control/v1/forks/")]  # noqa: SIM118
        assert len(keys) == 2
        assert B in site.stack.brokers
