"""Metrics of several processes on one page."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from infra.runtime.gathered_metrics import GatheredMetrics
from infra.runtime.metrics import MetricName
from infra.runtime.prometheus import PrometheusMetrics

PLAIN = ""
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
PARSERS = {PLAIN: plain_families, OPENMETRICS: openmetrics_families}


def of_a_task(records: int) -> PrometheusMetrics:
    metrics = PrometheusMetrics()
    metrics.count("egress_records", records, topic='a"\\ {b', partition="0")
    metrics.gauge("egress_memory_bytes", math.inf)
    metrics.observe("upload_latency_seconds", 0.3, topic="a", partition="0")
    return metrics


def gathered(
    tasks: Mapping[int, PrometheusMetrics | str], own: PrometheusMetrics, *shown: MetricName
) -> GatheredMetrics:
    def ask(accept: str) -> Mapping[int, str]:
        return {task: one if isinstance(one, str) else one.page(accept).text for task, one in tasks.items()}

    return GatheredMetrics(own.registry, shown, ask)


@pytest.mark.parametrize("accept", PARSERS)
def test_each_sample_has_its_task(accept: str) -> None:
    own = PrometheusMetrics()
    own.gauge("spark_tasks", 2)
    own.count("broker_errors")
    page = gathered({0: of_a_task(3), 1: of_a_task(4)}, own, "spark_tasks").page(accept)
    assert page.content_type == own.page(accept).content_type
    samples = [sample for family in PARSERS[accept](page.text) for sample in family.samples]  # type: ignore[no-untyped-call]
    found = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples if not s.name.endswith("_created")}
    labels = (("partition", "0"), ("task", "0"), ("topic", 'a"\\ {b'))
    assert found["replicator_egress_records_total", labels] == 3
    assert [value for (name, _), value in found.items() if name == "replicator_egress_records_total"] == [3, 4]
    assert found["replicator_egress_memory_bytes", (("task", "1"),)] == math.inf
    assert found["replicator_spark_tasks", ()] == 2
    broker_errors = [labels for name, labels in found if name == "replicator_broker_errors_total"]
    assert broker_errors == [(("task", "0"),), (("task", "1"),)], "this process's is not shown"
    assert sum(value for (name, _), value in found.items() if name == "replicator_upload_latency_seconds_count") == 2
    heads = [line for line in page.text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)), "one group for each name"


@pytest.mark.parametrize("accept", PARSERS)
def test_only_a_newline_ends_a_line(accept: str) -> None:
    one = PrometheusMetrics()
    one.count("egress_records", 3, topic="a\u2028b\x85c", partition="0")
    page = gathered({0: one}, PrometheusMetrics()).page(accept)
    assert '{task="0",partition="0",topic="a\u2028b\x85c"} 3.0\n' in page.text


@pytest.mark.parametrize("accept", PARSERS)
def test_a_page_is_that_of_the_client_but_for_the_task(accept: str) -> None:
    one = of_a_task(3)
    page = gathered({7: one}, PrometheusMetrics()).page(accept)
    without = page.text.replace('{task="7",', "{").replace('{task="7"}', "")
    assert without.splitlines() == one.page(accept).text.splitlines()


@pytest.mark.parametrize("accept", PARSERS)
@pytest.mark.parametrize("text", ["no metrics", "# HELP a b\nreplicator_x 3\n", "replicator_x 3\n"])
def test_what_cannot_be_read_is_left_out(text: str, accept: str, caplog: pytest.LogCaptureFixture) -> None:
    page = gathered({0: text, 1: of_a_task(1)}, PrometheusMetrics()).page(accept).text
    assert 'task="1"' in page
    assert 'task="0"' not in page
    assert [record.message for record in caplog.records] == ["metrics_not_read"]
