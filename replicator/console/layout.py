"""What the HTML pages share: their frame, and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote, urlencode

from replicator.console.markup import Content, Markup, content, element, fragment
from replicator.console.texts import age, ago, count, moment

PAGES = (
    ("overview", "/", "Overview"),
    ("topics", "/topics", "Topics"),
    ("groups", "/groups", "Groups"),
    ("compaction", "/compaction", "Compaction"),
    ("proofs", "/proofs", "Proofs"),
    ("problems", "/problems", "Problems"),
)
_BELOW = {"topic": "topics", "partition": "topics"}
_SKELETON = Template(files(__package__).joinpath("assets", "page.html").read_text(encoding="utf-8"))


def html_page(page: Mapping[str, Any], title: str, *body: Content, refresh_seconds: float, this: str) -> bytes:
    """`this`: the address of the page, for the link to its JSON."""
    here = _BELOW.get(page["page"], page["page"])
    links = [
        element("li", element("a", name, href=path, aria_current="page" if key == here else None))
        for key, path, name in PAGES
    ]
    found = _SKELETON.substitute(
        title=content(f"{title} · {page['own_region']}"),
        region=content(page["own_region"]),
        navigation=content(links),
        heading=content(title),
        freshness=content(_freshness(page)),
        body=content(body),
        json_link=content(element("a", "this page as JSON", href=with_query(this, format="json"))),
        refresh_seconds=content(str(round(refresh_seconds))),
    )
    return found.encode()


def _freshness(page: Mapping[str, Any]) -> Markup:
    """When the state was read, and every part that could not be read since."""
    failed = [
        element(
            "p",
            element("strong", f"{name} cannot be read: "),
            part["error"],
            element(
                "span",
                " Nothing of it was read yet."
                if part["read_at"] is None
                else f" What is shown here was read {ago(part['age_seconds'])}.",
            ),
            class_="stale",
            role="status",
        )
        for name, part in page["parts"].items()
        if part["error"]
    ]
    if page["refreshed_at"] is None:
        state = element("p", "The state is being read for the first time.", class_="fresh", role="status")
    else:
        state = element(
            "p", "Read ", moment(page["refreshed_at"]), f", in {page['refresh_seconds']:.1f} s.", class_="fresh"
        )
    if page["late_seconds"] is not None:
        late = f"No answer for {age(page['late_seconds'])}: a cluster or the bucket is slow, or away."
        failed.insert(0, element("p", late, class_="stale", role="status"))
    return fragment(state, failed)


def section(title: str, *body: Content, level: str = "h2") -> Markup:
    return element("section", element(level, title), *body)


def not_read(page: Mapping[str, Any], *parts: str) -> Markup | None:
    """Which of these parts were never read; None when all were."""
    names = [part for part in parts if part in page["not_read"]]
    return element("p", f"Not read yet: {', '.join(names)}.", class_="quiet") if names else None


def data_table(
    label: str,
    head: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Content]],
    *,
    unread: Markup | None = None,
) -> Markup:
    """`head`: name and class of each column: "number" for numbers, "minor" for what a narrow screen leaves out. The
    table scrolls by itself, also with keys. `unread`: of `not_read`, what the rows lack."""
    if unread is not None:
        return fragment(data_table(label, head, rows) if rows else None, unread)
    if not rows:
        return element("p", f"{label}: none.", class_="quiet")
    cells = [
        element(
            "tr",
            *(
                element("th" if n == 0 else "td", cell, class_=head[n][1] or None, scope="row" if n == 0 else None)
                for n, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    top = element("tr", *(element("th", name, class_=kind or None, scope="col") for name, kind in head))
    table = element("table", element("thead", top), element("tbody", *cells))
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex=0)


def chip(condition: str) -> Markup:
    return element("span", condition, class_=f"chip {condition}")


def definition_list(*pairs: tuple[str, Content]) -> Markup:
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs))


def problem_list(problems: Sequence[str]) -> Markup:
    return element("ul", *(element("li", problem) for problem in problems), class_="problems")


def pager(page: Mapping[str, Any], this: str, **query: str) -> Markup:
    """Links to the page before and after."""
    number, pages = page["number"], page["pages"]
    if pages == 1:
        return fragment()
    links: list[Content] = []
    if number > 1:
        links.append(element("a", "previous", href=with_query(this, **query, page=str(number - 1)), rel="prev"))
    links.append(element("span", f"page {count(number)} of {count(pages)}, {count(page['total'])} in all"))
    if number < pages:
        links.append(element("a", "next", href=with_query(this, **query, page=str(number + 1)), rel="next"))
    return element("nav", *links, class_="pager", aria_label="Pages of the list")


def search_form(action: str, label: str, value: str) -> Markup:
    return element(
        "form",
        element("label", label, for_="q"),
        element("input", id="q", name="q", type="search", value=value, autocomplete="off", spellcheck="false"),
        element("button", "Search", type="submit"),
        class_="search",
        action=action,
        method="get",
        role="search",
    )


def topic_link(region: str, topic: str) -> Markup:
    return element("a", topic, href=topic_path(region, topic))


def topic_path(region: str, topic: str, partition: int | None = None) -> str:
    path = f"/topics/{quote(region, safe='')}/{quote(topic, safe='')}"
    return path if partition is None else f"{path}/{partition}"


def with_query(path: str, **query: str) -> str:
    """`path` may have a query already; empty values are left out."""
    wanted = {name: value for name, value in query.items() if value}
    joiner = "&" if "?" in path else "?"
    return f"{path}{joiner}{urlencode(wanted)}" if wanted else path
