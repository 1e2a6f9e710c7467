"""An unclean leader election gives the offsets of archived records to others: never one archive of two logs.

before    0 … old … 99 100 … lost … 199                         archived, committed and delivered up to 199
after     0 … old … 99 100 … new … 329                          an unclean leader had stopped at 99
wanted    the partition stops, and says why; after `adopt --fork` the log is archived in another place
"""

from __future__ import annotations

import io
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from infra.local.aws import s3_client
from tests.cluster.unclean import elect_behind, leave_behind
from tests.formats.sample_records import rows_of
from tests.processes.flow import Flow, contents
from tests.processes.harness import PREFIX, A
from tests.processes.judge import judge_target
from tests.processes.traffic import EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from infra.local.cluster import BrokerCluster
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]


def drafts(word: str, first: int, count: int) -> list[Draft]:
    return [Draft(0, b"k", f"{word} {n}".encode(), (), EPOCH_MS + n) for n in range(first, first + count)]


def test_an_unclean_leader_forks_the_source(site: Site, cluster: BrokerCluster) -> None:
    with Flow(site, partitions=1) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "on_recreate": "follow"}).start()
        old, lost, new = drafts("old", 0, 100), drafts("lost", 100, 100), drafts("new", 100, 230)
        produce_all(cluster.bootstrap, flow.topic, old)
        flow.wait_for_archive()
        behind = leave_behind(cluster, flow.topic, 0)
        produce_all(cluster.bootstrap, flow.topic, lost)
        flow.wait_for_archive()
        site.wait("the records are delivered", lambda: flow.delivered() == len(old) + len(lost))

        elect_behind(cluster, flow.topic, 0, behind)
        produce_all(cluster.bootstrap, flow.topic, new)
        await_hold(site, flow, egress)
        egress.stop()
        egress.start()
        await_hold(site, flow, egress)
        assert values(site, flow) == [each.value for each in (*old, *lost)], "the archive holds one log"
        assert flow.delivered() == len(old) + len(lost)

        adopt = site.command("adopt", egress, "adopt", "--fork", flow.topic).start(environment={})
        site.wait("adopt ends", lambda: adopt.exit_code is not None)
        assert adopt.exit_code == 0, adopt.explain("refused")
        everything = [contents(each) for each in (*old, *lost, *new)]
        site.wait("the new log is delivered", lambda: flow.delivered() == len(everything))
        adopt.end()
        site.stop(egress, ingress)
        judge_target(everything, flow.read_target()[0].records, rewinds=0, run=len(everything))
        assert values(site, flow) == [each.value for each in (*old, *lost)], "the place before is left as it was"


def await_hold(site: Site, flow: Flow, egress: Worker) -> None:
    """Until egress stops the partition at the fork, and names both remedies."""

    def holds() -> bool:
        found = egress.readiness()
        reason = found.get("stopped", {}).get(f"{A}/{flow.topic}/0", "")
        assert not (reason and found["ready"])
        return all(word in reason for word in ("which ends at 100 now", "adopt --fork", "gaps accept"))

    site.wait("egress stops the partition", holds)


def values(site: Site, flow: Flow) -> list[bytes | None]:
    """Of all records under the topic's own name, in offset order."""
    found: dict[int, bytes | None] = {}
    head = f"{PREFIX}/{A}/{flow.topic}/0/"
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        keys = sorted(site.keys())
        for key in filter(lambda key: key.startswith(head), keys):
            body = s3.get_object(Bucket=site.bucket, Key=key)["Body"].read()
            for row in rows_of(pq.read_table(io.BytesIO(body)).to_batches()):
                assert found.setdefault(row["offset"], row["value"]) == row["value"], f"{key}: two truths"
    return [value for _, value in sorted(found.items())]
