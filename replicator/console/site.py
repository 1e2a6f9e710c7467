"""Which page answers which address, and in which form: HTML for browsers, JSON for programs. Pure.

An address has one state in two forms. JSON is the answer to `Accept: application/json` and to `?format=json`. A suffix
would not do: topics may be called `orders.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

from infra.runtime.http_server import Request, Response
from replicator.console import job_pages, job_views, topic_pages, topic_views
from replicator.console.access import AccessRules
from replicator.console.history import LagHistory
from replicator.console.job_pages import CompactionRun
from replicator.console.layout import html_page
from replicator.console.page_frame import ConsolePage, PageQuery
from replicator.console.segment_map import PartitionSegments
from replicator.console.state import ConsoleState
from replicator.console.topic_views import View

HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json; charset=utf-8", "text/plain; charset=utf-8"
_TYPES: Mapping[str, str] = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_ASSETS: Mapping[str, Response] = {
    name: Response(200, kind, files(__package__).joinpath("assets", name).read_bytes()) for name, kind in _TYPES.items()
}
"""Read once: they are parts of the program."""
LONGEST_SEARCH = 300
LATE, LATE_TIMES = timedelta(minutes=1), 3
"""A reading that takes longer, and so many times as long as the last one, may never end."""
_VIEWS = {
    "overview": topic_views.overview_view,
    "topics": topic_views.topics_view,
    "topic": topic_views.topic_view,
    "partition": topic_views.partition_view,
    "problems": topic_views.problems_view,
    "compaction": job_views.compaction_view,
    "groups": job_views.groups_view,
    "proofs": job_views.proofs_view,
}

PartitionKey = tuple[str, str, int]
"""Region, topic and number of a partition, in all incarnations."""


class ConsoleSource(Protocol):
    """What the pages are made of. Every method answers at once: it reads neither cluster nor bucket."""

    @property
    def state(self) -> ConsoleState: ...

    @property
    def reading_since(self) -> datetime | None:
        """When the reading under way began; None: none is."""

    @property
    def history(self) -> LagHistory: ...

    @property
    def runs(self) -> Sequence[CompactionRun]: ...

    def segments(self, where: PartitionKey) -> PartitionSegments | None:
        """As they were listed last; None while they are not. Asking for them lets them be listed soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSite:
    source: ConsoleSource
    rules: AccessRules
    refresh_seconds: float

    def respond(self, request: Request, now: datetime) -> Response:
        if refused := self.rules.refusal(request):
            return refused
        path, _, query_text = request.path.partition("?")
        query = parse_qs(query_text)
        if path.startswith("/assets/"):
            return _ASSETS.get(path.removeprefix("/assets/")) or _not_found(path, as_json=False)
        try:
            page = self._page(path, query, now)
        except ValueError:
            page = None
        as_json = _wants_json(request.header("accept"), query)
        if page is None:
            return _not_found(path, as_json=as_json)
        page = {**page, "late_seconds": self._late_seconds(now)}
        if as_json:
            return Response(200, JSON, json.dumps(page, separators=(",", ":")).encode() + b"\n")
        title, body = _view(page)
        this = request.path if path.startswith("/") else "/"
        return Response(200, HTML, html_page(page, title, body, refresh_seconds=self.refresh_seconds, this=this))

    def _page(self, path: str, query: Mapping[str, Sequence[str]], now: datetime) -> ConsolePage | None:
        """None when there is no such page. Raises ValueError for a number that is none."""
        state, asked = self.source.state, _asked(query)
        match [unquote(part) for part in path.split("/")[1:]]:
            case [""]:
                return topic_pages.overview(state, self.source.history, now)
            case ["topics"]:
                return topic_pages.topics_page(state, now, asked)
            case ["topics", region, topic]:
                return topic_pages.topic_page(state, self.source.history, now, (region, topic), asked)
            case ["topics", region, topic, number] if number.isdecimal() and number.isascii() and len(number) < 11:
                return self._partition(state, now, (region, topic, int(number)))
            case ["problems"]:
                return topic_pages.problems_page(state, now, asked)
            case ["compaction"]:
                return job_pages.compaction_page(state, now, self.source.runs)
            case ["groups"]:
                return job_pages.groups_page(state, now, asked)
            case ["proofs"]:
                return job_pages.proofs_page(state, now, asked)
            case _:
                return None

    def _late_seconds(self, now: datetime) -> float | None:
        """How long a reading has been under way that takes unusually long; None: there is none."""
        if (since := self.source.reading_since) is None:
            return None
        usual = timedelta(seconds=self.source.state.refresh_seconds)
        return round((now - since).total_seconds(), 1) if now - since > max(LATE, usual * LATE_TIMES) else None

    def _partition(self, state: ConsoleState, now: datetime, where: PartitionKey) -> ConsolePage | None:
        """Segments are asked for only of a partition that exists: no request makes the console list anything else."""
        page = topic_pages.partition_page(state, self.source.history, now, where, None)
        if page is None or not page["flows"]:
            return page
        return topic_pages.partition_page(state, self.source.history, now, where, self.source.segments(where))


def _asked(query: Mapping[str, Sequence[str]]) -> PageQuery:
    number = query.get("page", ["1"])[0]
    return PageQuery(
        search=query.get("q", [""])[0][:LONGEST_SEARCH],
        sort=query.get("sort", [""])[0],
        number=int(number) if number.isdecimal() and len(number) < 8 else 1,
    )


def _wants_json(accept: str, query: Mapping[str, Sequence[str]]) -> bool:
    """By the first of the two types that is named; HTML when neither is."""
    if query.get("format") == ["json"]:
        return True
    named = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    first = next((kind for kind in named if kind in ("text/html", "application/json")), "")
    return first == "application/json"


def _view(page: Mapping[str, Any]) -> View:
    return _VIEWS[page["page"]](page)


def _not_found(path: str, *, as_json: bool) -> Response:
    addresses = ["/", "/topics", "/groups", "/compaction", "/proofs", "/problems"]
    if as_json:
        return Response(404, JSON, json.dumps({"error": f"nothing is at {path}", "pages": addresses}).encode() + b"\n")
    return Response(404, TEXT, f"nothing is at {path}; pages: {' '.join(addresses)}\n".encode())
