"""Writes infra/deploy/grafana/*.json, dashboards for Grafana: `python -m tests.docs.generate` calls it.

A dashboard is rows of panels, and a panel is a title, a unit of Grafana, and one expression for each line. The data
source is a variable, and so is the source region where a metric has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.docs.markdown import ROOT

FOLDER = ROOT / "infra" / "deploy" / "grafana"
PANELS_A_ROW, WIDTH, HEIGHT = 3, 24, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
MONTH_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    unit: str  # of Grafana
    lines: Mapping[str, str]  # legend -> expression
    is_number: bool = False  # one large figure, instead of lines over time
    about: str = ""


def _lines(expression: str, legend: str) -> Mapping[str, str]:
    return {legend: expression}


def _events(name: str, by: str) -> str:
    """Of a counter of rare events: since an hour ago, as the alerts count them. A restart sets a counter to 0, which
    `increase` sees; a series that did not exist then counts from 0."""
    return f"sum by ({by}) (({name} unless {name} offset 1h) or round(increase({name}[1h])))"


def _quantile(quantile: str, histogram: str, *by: str) -> str:
    rates = f"rate(replicator_{histogram}_bucket[10m])"
    return f"histogram_quantile({quantile}, sum by ({', '.join(('le', *by))}) ({rates}))"


def _cost(operations: str, price: str) -> str:
    """US dollars a month."""
    rate = f'sum(rate(replicator_store_requests_total{{operation=~"{operations}"}}[1h]))'
    return f"{rate} * {MONTH_SECONDS} * {price} / 1000"


OVERVIEW: Mapping[str, Sequence[Panel]] = {
    "Is anything wrong?": (
        Panel(
            title="Processes not ready",
            unit="none",
            is_number=True,
            lines=_lines("count(replicator_ready == 0) or vector(0)", ""),
        ),
        Panel(
            title="Stopped partitions",
            unit="none",
            is_number=True,
            lines=_lines(
                '(sum(replicator_stopped_partitions{held="true"}) or vector(0)) + '
                '(max(replicator_stopped_partitions{held="false"}) or vector(0))',
                "",
            ),
        ),
        Panel(
            title="RPO of the worst partition",
            unit="s",
            is_number=True,
            lines=_lines('max(replicator_source_lag_seconds{region=~"$region"})', ""),
            about="The target holds everything that the source held so long ago, by the source's clock.",
        ),
    ),
    "How far behind": (
        Panel(
            title="RPO by topic",
            unit="s",
            lines=_lines(
                'max by (region, topic) (replicator_source_lag_seconds{region=~"$region"})', "{{region}} {{topic}}"
            ),
        ),
        Panel(
            title="Oldest record not archived",
            unit="s",
            lines=_lines("max by (topic) (replicator_egress_lag_seconds)", "{{topic}}"),
        ),
        Panel(
            title="Age of the source's heartbeat",
            unit="s",
            lines=_lines('max by (region) (replicator_source_heartbeat_age_seconds{region=~"$region"})', "{{region}}"),
        ),
        Panel(
            title="Records not delivered, by the source's watermarks",
            unit="short",
            lines=_lines(
                'sum by (region, topic) (replicator_source_lag_records{region=~"$region"})', "{{region}} {{topic}}"
            ),
        ),
        Panel(
            title="Replication latency",
            unit="s",
            lines={one: _quantile(one, "replication_latency_seconds") for one in ("0.5", "0.99")},
        ),
        Panel(
            title="Where the time goes, 99th percentile",
            unit="s",
            lines=_lines(_quantile("0.99", "segment_stage_seconds", "stage"), "{{stage}}"),
        ),
    ),
    "Lost or set aside": (
        Panel(
            title="Offsets that the source deleted first, last hour",
            unit="none",
            lines=_lines(_events("replicator_egress_recorded_gap_offsets_total", "topic"), "{{topic}}"),
        ),
        Panel(
            title="Segments lost or corrupt, last hour",
            unit="none",
            lines={
                "lost {{topic}}": _events("replicator_lost_segments_total", "topic"),
                "corrupt {{topic}}": _events("replicator_corrupt_segments_total", "topic"),
            },
        ),
        Panel(
            title="Offsets that will not be delivered",
            unit="none",
            lines=_lines(
                'max by (region, topic) (replicator_undelivered_offsets{region=~"$region"})', "{{region}} {{topic}}"
            ),
        ),
    ),
    "Proofs and cost": (
        Panel(
            title="RTO and RPO of the last drill",
            unit="s",
            lines={
                "RTO {{region}}": "max by (region) (replicator_drill_restore_seconds)",
                "RPO {{region}}": "max by (region) (replicator_drill_behind_seconds)",
            },
        ),
        Panel(
            title="Requests to the bucket",
            unit="reqps",
            lines=_lines("sum by (operation) (rate(replicator_store_requests_total[5m]))", "{{operation}}"),
        ),
        Panel(
            title="Requests to the bucket, US dollars a month",
            unit="currencyUSD",
            lines={
                "put and list": _cost("put_new|list", "$put_price"),
                "get": _cost("open|stat", "$get_price"),
            },
            about="By the prices of 1,000 requests above. A lower bound: parts and later reads are not counted.",
        ),
    ),
}
EGRESS: Mapping[str, Sequence[Panel]] = {
    "Archive": (
        Panel(
            title="Records archived",
            unit="cps",
            lines=_lines("sum by (topic) (rate(replicator_egress_records_total[5m]))", "{{topic}}"),
        ),
        Panel(
            title="Raw and stored bytes",
            unit="Bps",
            lines={
                "raw": "sum(rate(replicator_egress_bytes_total[5m]))",
                "stored": "sum(rate(replicator_egress_stored_bytes_total[5m]))",
            },
        ),
        Panel(
            title="Segments by what sealed them",
            unit="cps",
            lines=_lines("sum by (reason) (rate(replicator_egress_segments_total[5m]))", "{{reason}}"),
        ),
        Panel(title="Lag", unit="short", lines=_lines("sum by (topic) (replicator_egress_lag_records)", "{{topic}}")),
        Panel(
            title="Upload, 99th percentile",
            unit="s",
            lines=_lines(
                _quantile("0.99", "upload_latency_seconds"),
                "seal to stored",
            ),
        ),
        Panel(
            title="Stuck transactions",
            unit="s",
            lines=_lines(
                "max by (topic, partition) (replicator_stuck_transaction_seconds) > 0", "{{topic}} {{partition}}"
            ),
        ),
    ),
    "Memory and pressure": (
        Panel(title="Records in memory", unit="bytes", lines=_lines("replicator_egress_memory_bytes", "{{instance}}")),
        Panel(
            title="Spool",
            unit="bytes",
            lines={
                "used {{instance}}": "replicator_egress_spool_bytes",
                "limit {{instance}}": "replicator_egress_spool_limit_bytes",
            },
        ),
        Panel(
            title="Pauses and rewinds",
            unit="cps",
            lines={
                "pauses": "sum(rate(replicator_egress_pauses_total[5m]))",
                "rewinds": "sum(rate(replicator_egress_rewinds_total[5m]))",
            },
        ),
        Panel(
            title="Failed requests to the bucket",
            unit="cps",
            lines=_lines("sum by (operation) (rate(replicator_store_errors_total[5m]))", "{{operation}}"),
        ),
        Panel(
            title="Errors of the Kafka client",
            unit="cps",
            lines=_lines("sum by (instance) (rate(replicator_broker_errors_total[5m]))", "{{instance}}"),
        ),
        Panel(title="Assigned partitions", unit="none", lines=_lines("replicator_assigned_partitions", "{{instance}}")),
    ),
}
INGRESS: Mapping[str, Sequence[Panel]] = {
    "Delivery": (
        Panel(
            title="Records delivered",
            unit="cps",
            lines=_lines(
                'sum by (region, destination) (rate(replicator_record_count_total{region=~"$region"}[5m]))',
                "{{region}} {{destination}}",
            ),
        ),
        Panel(
            title="Bytes delivered",
            unit="Bps",
            lines=_lines('sum by (region) (rate(replicator_record_bytes_total{region=~"$region"}[5m]))', "{{region}}"),
        ),
        Panel(
            title="Archived, and not delivered",
            unit="short",
            lines=_lines(
                "sum by (region, topic) (max by (region, topic, partition) "
                '(replicator_ingress_lag_records{region=~"$region"}))',
                "{{region}} {{topic}}",
            ),
        ),
        Panel(
            title="Age of the oldest segment that waits",
            unit="s",
            lines=_lines(
                'max by (region, topic) (replicator_ingress_lag_seconds{region=~"$region"})', "{{region}} {{topic}}"
            ),
        ),
        Panel(
            title="Produce, 99th percentile",
            unit="s",
            lines=_lines(
                _quantile("0.99", "produce_latency_seconds"),
                "run to acknowledged",
            ),
        ),
        Panel(
            title="Late segments, listings",
            unit="cps",
            lines={
                "late": "sum(rate(replicator_late_segments_total[5m]))",
                "listings, {{reason}}": "sum by (reason) (rate(replicator_relists_total[5m]))",
            },
        ),
    ),
    "Notifications": (
        Panel(
            title="Segment events",
            unit="cps",
            lines=_lines("sum by (type) (rate(replicator_segment_events_total[5m]))", "{{type}}"),
        ),
        Panel(
            title="Messages not understood",
            unit="cps",
            lines={
                "malformed": "sum(rate(replicator_malformed_notifications_total[5m]))",
                "of other prefixes": "sum(rate(replicator_foreign_notifications_total[5m]))",
                "malformed keys": "sum(rate(replicator_malformed_keys_total[5m]))",
            },
        ),
        Panel(
            title="Gaps passed over, last hour",
            unit="none",
            lines=_lines(_events("replicator_passed_offsets_total", "topic"), "{{topic}}"),
        ),
    ),
    "Consumer groups": (
        Panel(
            title="Age of the newest positions",
            unit="s",
            lines=_lines('max by (region) (replicator_group_snapshot_age_seconds{region=~"$region"})', "{{region}}"),
        ),
        Panel(
            title="Positions by exactness",
            unit="none",
            lines=_lines('sum by (exactness) (replicator_group_positions{region=~"$region"})', "{{exactness}}"),
        ),
        Panel(
            title="Offsets by outcome",
            unit="none",
            lines=_lines('sum by (outcome) (replicator_group_offsets{region=~"$region"})', "{{outcome}}"),
        ),
    ),
}
DASHBOARDS: Mapping[str, tuple[str, Mapping[str, Sequence[Panel]]]] = {
    "overview": ("Replicator", OVERVIEW),
    "egress": ("Replicator: egress", EGRESS),
    "ingress": ("Replicator: ingress", INGRESS),
}


def files() -> Iterator[tuple[str, str]]:
    """File name and text of each dashboard."""
    for name, (title, rows) in DASHBOARDS.items():
        yield f"{name}.json", json.dumps(_dashboard(name, title, rows), indent=1) + "\n"


def expressions() -> Iterator[tuple[str, str]]:
    """Title of the panel, and the expression, of each line of all dashboards."""
    for _, rows in DASHBOARDS.values():
        for panels in rows.values():
            for panel in panels:
                yield from ((panel.title, expression) for expression in panel.lines.values())


def _dashboard(name: str, title: str, rows: Mapping[str, Sequence[Panel]]) -> Mapping[str, Any]:
    panels: list[Mapping[str, Any]] = []
    top = 0
    for row, members in rows.items():
        panels.append(
            {"type": "row", "title": row, "id": len(panels) + 1, "gridPos": _place(0, top, WIDTH, 1), "panels": []}
        )
        top += 1
        for number, panel in enumerate(members):
            width = WIDTH // PANELS_A_ROW
            left, down = number % PANELS_A_ROW * width, number // PANELS_A_ROW * HEIGHT
            panels.append(_panel(panel, len(panels) + 1, _place(left, top + down, width, HEIGHT)))
        top += -(-len(members) // PANELS_A_ROW) * HEIGHT
    return {
        "uid": f"replicator-{name}",
        "title": title,
        "tags": ["kafka-segment-replicator"],
        "timezone": "utc",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [*_variables()]},
        "panels": panels,
    }


def _variables() -> Iterator[Mapping[str, Any]]:
    yield {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "region",
        "label": "source region",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(replicator_source_heartbeat_age_seconds, region)", "refId": "regions"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    for name, label, price in (
        ("put_price", "price of 1,000 PUT", "0.005"),
        ("get_price", "price of 1,000 GET", "0.0004"),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "textbox",
            "query": price,
            "current": {"text": price, "value": price},
        }


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> Mapping[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + line), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for line, (legend, expression) in enumerate(panel.lines.items())
        ],
    }


def _place(left: int, top: int, width: int, height: int) -> Mapping[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}
