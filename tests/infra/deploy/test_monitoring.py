"""Alert rules and dashboards against the metrics that exist; promtool plays the rules' own tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local.cache import cache_dir, locked
from infra.runtime.metrics import COUNTERS, HISTOGRAMS, TABLE, MetricName
from infra.runtime.prometheus import PrometheusMetrics
from tests.docs import dashboards

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "infra" / "deploy" / "prometheus"
PROMTOOL = "v0.316.0"
OF_PROMETHEUS = {"instance", "job", "le", "alertname", "alertstate", "severity"}
_NAME = re.compile(r"\breplicator_[a-z_]+")
_SELECTED = re.compile(r"(replicator_[a-z_]+)\{([^}]*)\}")
_GROUPED = re.compile(r"by \(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((RULES / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def cases() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load((RULES / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    return loaded


def metric_of(series: str) -> MetricName:
    """Raises KeyError for a series that no metric has."""
    base = series.removeprefix("replicator_")
    known = {name + "_total" if name in COUNTERS else name: name for name in TABLE}
    known |= {f"{name}_{part}": name for name in HISTOGRAMS for part in ("bucket", "count", "sum")}
    return known[base]


def problems(expression: str) -> Iterator[str]:
    """Series that do not exist, and labels that they do not have."""
    allowed = set(OF_PROMETHEUS)
    for series in _NAME.findall(expression):
        try:
            allowed.update(TABLE[metric_of(series)].labels)
        except KeyError:
            yield f"no metric {series}"
    for series, selector in _SELECTED.findall(expression):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
            if label not in {*OF_PROMETHEUS, *TABLE[metric_of(series)].labels}:
                yield f"{series} has no label {label}"
    for labels in _GROUPED.findall(expression):
        yield from (f"no label {label}" for label in re.findall(r"\w+", labels) if label not in allowed)


def test_every_rule_asks_for_metrics_that_exist() -> None:
    assert {rule["alert"]: list(problems(rule["expr"])) for rule in rules() if list(problems(rule["expr"]))} == {}


def test_every_panel_asks_for_metrics_that_exist() -> None:
    found = [(title, list(problems(one))) for title, one in dashboards.expressions()]
    assert [row for row in found if row[1]] == []


def test_every_series_of_a_panel_is_served() -> None:
    """By `/metrics` of a registry as a process has it."""
    served = set(re.findall(r"^# TYPE (\S+)", PrometheusMetrics().page("application/openmetrics-text").text, re.M))
    for title, expression in dashboards.expressions():
        for series in _NAME.findall(expression):
            assert f"replicator_{metric_of(series)}" in served, title


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(replicator_redy)", "no metric replicator_redy"),
        ('replicator_ready{region="us"}', "replicator_ready has no label region"),
        ("sum by (topic) (replicator_ready)", "no label topic"),
        ("rate(replicator_store_requests[5m])", "no metric replicator_store_requests"),
    ],
)
def test_a_planted_mistake_is_found(expression: str, problem: str) -> None:
    assert problem in list(problems(expression))


def test_no_label_of_a_metric_is_one_that_prometheus_gives_its_target() -> None:
    """It would be renamed to exported_job, for instance, and the rules would select the target's."""
    assert [name for name, metric in TABLE.items() if {"job", "instance"} & set(metric.labels)] == []


def test_series_of_the_rules_tests_are_those_of_a_target() -> None:
    for case in cases():
        for one in case["input_series"]:
            assert {"job", "instance"} <= set(re.findall(r"(\w+)=", one["series"])), one["series"]


def test_the_dashboards_are_what_make_docs_writes() -> None:
    for name, text in dashboards.files():
        assert (dashboards.FOLDER / name).read_text(encoding="utf-8") == text


def test_no_panel_subtracts_an_earlier_value_of_a_counter() -> None:
    """It would be negative after a restart, by all that the process before it counted."""
    assert [
        title for title, one in dashboards.expressions() if re.search(r"-\s*\(?\s*replicator_\w+ offset", one)
    ] == []


def test_every_rule_has_a_case_that_fires_and_one_that_is_quiet() -> None:
    fires: dict[str, set[bool]] = {rule["alert"]: set() for rule in rules()}
    for case in cases():
        (asked,) = case["promql_expr_test"]
        (alert,) = re.findall(r'alertname="(\w+)"', asked["expr"])
        fires[alert].add(bool(asked["exp_samples"]))
    assert {alert for alert, seen in fires.items() if seen != {True, False}} == set()


def test_every_rule_says_what_to_do_and_has_a_row_in_the_docs() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert f"| `{rule['alert']}` |" in page


def promtool() -> Path:
    """Builds it if absent (minutes). Skips the test if Go is absent."""
    folder = cache_dir() / f"promtool-{PROMTOOL}"
    program = folder / "promtool"
    with locked(cache_dir() / "promtool.lock"):
        if not program.exists():
            if (go := shutil.which("go")) is None:
                pytest.skip("Go is not installed: promtool cannot be built")
            subprocess.run(
                [go, "install", f"github.com/prometheus/prometheus/cmd/promtool@{PROMTOOL}"],
                env=os.environ | {"GOBIN": str(folder)},
                check=True,
            )
    return program


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ("7x100", 0),  # counted by a process that runs for long
        ("7x50 0x50", 0),  # and by one that was restarted since
        ("7x50 0x20 2x30", 2),
        ("7x60 9x40", 2),
        ("_x60 3x40", 3),  # a series that begins with its first event
    ],
)
def test_panels_of_rare_events(values: str, wanted: int, tmp_path: Path) -> None:
    rare = [one for _, one in dashboards.expressions() if "offset 1h" in one]
    assert len(rare) == 4
    tests = []
    for expression in rare:
        (series,) = set(_NAME.findall(expression))
        labels = '{instance="a", job="replicator", topic="t", partition="0"}'
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": f"{series}{labels}", "values": values}],
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": "90m",
                        "exp_samples": [{"labels": '{topic="t"}', "value": wanted}],
                    }
                ],
            }
        )
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": tests}), encoding="utf-8")
    done = subprocess.run([promtool(), "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool(command: tuple[str, ...]) -> None:
    done = subprocess.run([promtool(), *command], cwd=RULES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
