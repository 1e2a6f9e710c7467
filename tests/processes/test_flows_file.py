"""Egress and ingress of one file with both regions: each takes its half, and takes over what changes in the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.test_reloaded_file import APPLIED_WITHIN, problem, produce

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]


def cluster(tables: Mapping[str, Any], section: str, content: str) -> dict[str, Any]:
    """A file of one region without what flows say."""
    settings = {name: value for name, value in tables[section].items() if name != content}
    return {**{name: value for name, value in tables.items() if name != "region"}, section: settings}


def test_one_file_for_both_regions(site: Site) -> None:
    with Flow(site, "one", 2) as one, Flow(site, "two", 2) as two:
        source = site.egress("source", {one.topic: {}})
        target = site.ingress("target", {"topic": one.topic})
        clusters = {A: cluster(source.tables, "egress", "topics"), B: cluster(target.tables, "ingress", "sources")}
        clusters[A]["egress"]["defaults"] = next(iter(source.tables["egress"]["topics"].values()))
        defaults = {"destination_topic": "{topic}.ingress", "first_segment_delay": "0s"}

        def file(*flows: Flow) -> dict[str, Any]:
            topics = [flow.topic for flow in flows]
            return {"clusters": clusters, "flow_defaults": defaults, "flows": {f"{A}->{B}": {"topics": topics}}}

        source.tables = file(one)
        egress = site.command("egress", source, "egress", "--region", A).start()
        ingress = site.command("ingress", source, "ingress", "--region", B).start()
        produce(one)
        for worker in (egress, ingress):
            worker.write(file(one, two))
        site.wait(
            "the flow's new topic taken over",
            lambda: all(worker.logged("config_reloaded") for worker in (egress, ingress)),
            APPLIED_WITHIN,
        )
        produce(one, two)
        assert [problem(worker) for worker in (egress, ingress)] == ["", ""]
        site.stop(egress, ingress)
        for flow in (one, two):
            flow.judge_target(rewinds=0)
            flow.judge_archive()
