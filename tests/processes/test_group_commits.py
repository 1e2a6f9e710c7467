"""What a group commits at the source appears in the bucket, from when the file of a running egress selects it."""

from __future__ import annotations

import signal
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from formats.control.group_snapshot import GroupSnapshot, decode_group_snapshot
from formats.control.keys import groups_prefix
from infra.contracts.cluster import Committed, TopicPartition
from infra.local.aws import s3_client
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, A

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration


def newest(site: Site) -> GroupSnapshot | None:
    keys = sorted(key for key in set(site.keys()) if key.startswith(groups_prefix(PREFIX, A)))
    if not keys:
        return None
    with closing(s3_client(site.stack.moto.endpoint_url)) as client:
        return decode_group_snapshot(client.get_object(Bucket=site.bucket, Key=keys[-1])["Body"].read())


def test_a_commit_at_the_source_appears_in_the_bucket(site: Site) -> None:
    group = f"{site.name}.shop"

    def committed() -> int | None:
        found = newest(site)
        known = None if found is None else found.groups.get(group)
        return None if known is None else dict(known.topics[flow.topic].items())[1].next_offset

    def commit_at(offset: int) -> None:
        commit(
            {"bootstrap.servers": site.bootstrap(A)}, group, {TopicPartition(flow.topic, 1): Committed(offset, "note")}
        )

    with Flow(site, partitions=2) as flow:
        commit_at(3)
        egress = site.egress(
            "egress", {flow.topic: {}}, heartbeat_interval="1s", watermark_interval="1s", group_interval="1s"
        ).start()
        site.wait("the catalogue", lambda: any("/catalog/" in key for key in set(site.keys())))
        assert newest(site) is None, "no group is selected"

        settings = {**egress.tables["egress"], "groups": [f"^{site.name}[.].*"]}
        egress.write({**egress.tables, "egress": settings})
        egress.signal(signal.SIGHUP)
        site.wait("the first commit", lambda: committed() == 3)
        commit_at(7)
        site.wait("the next commit", lambda: committed() == 7)

        code, text = egress.run("status")
        assert code == 0, text
        assert f"groups of {A}: 1 in the newest snapshot, " in text
        site.stop(egress)
