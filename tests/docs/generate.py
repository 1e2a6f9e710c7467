"""Writes the generated pages of docs/, the examples of docs/formats.md, and the dashboards: `make docs`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby

from infra.runtime.metrics import COUNTERS, GAUGES, HISTOGRAMS, TABLE, MetricName
from replicator.config.reference import Entry, entries, sections
from replicator.doctor.catalogue import KINDS
from replicator.rights.table import IAM, KAFKA, OPTIONAL
from tests.docs import dashboards
from tests.docs.markdown import ROOT
from tests.docs.samples import examples

_EXAMPLE = re.compile(r"(?P<head><!-- example: (?P<name>[^>]+?) -->\n\n```[a-z]+\n)(?P<text>.*?)^```$", re.M | re.S)
_NOTICE = "<!-- Written by `make docs`: change the settings themselves, then run it again. -->"
_METRICS_NOTICE = "<!-- Written by `make docs` from infra/runtime/metrics.py. -->"


_CONFIGURATION = f"""\
# Configuration

{_NOTICE}

One TOML file serves every command: `--config FILE`, else `$REPLICATOR_CONFIG`, else `./replicator.toml`. Unknown keys
are refused, and `replicator config check` names every problem at once. `replicator config show` prints the file as
understood, with every default; `replicator config schema` prints this page as a commented file, and `replicator config
explain [NAME]` says of each setting of a file where its value comes from. One file may also describe [several
regions](flows.md).

**Changes** of a setting that *reloads* are taken over by a running `egress` or `ingress`
([reloading](operations.md#reloading-the-configuration)); one that says *restart* holds from the next start.

- **Durations** are texts such as `"30s"`, `"5m"`, `"1h"`, `"90d"`; **sizes** such as `"16MiB"`, `"4GiB"`, or whole
  numbers of bytes.
- **Secrets** may only be given as `${{NAME}}`, a variable of the environment.
- **Topics** are names, or expressions that begin with `^` and must match the whole name; a name beats an expression.
"""
_METRICS = f"""\
# Metrics

{_METRICS_NOTICE}

Served by `/metrics` of a process with `[metrics] listen` ([operations](operations.md#watching)). Every name has the
prefix `replicator_`; counters have the suffix `_total`. The labels `topic` and `partition` are of the cluster that the
process works with; together with `region` they are of the source, and `destination` is the topic at the target.
"""


def configuration() -> str:
    """docs/configuration.md."""
    by_section = {name: list(found) for name, found in groupby(entries(), key=lambda entry: entry.section)}
    parts = [_CONFIGURATION]
    for section in sections():
        parts += [f"## {_heading(section.header)}", ""]
        parts += [f"{_sentence(text)}" for text in (section.about, *section.notes) if text]
        parts.append("")
        if found := by_section.get(section.header):
            parts += ["| setting | type | default | change | |", "|---|---|---|---|---|", *map(_row, found), ""]
    return "\n".join(parts)


def _heading(header: str) -> str:
    return f"`{header}`" if header else "Top level"


def _sentence(text: str) -> str:
    return _cell(text if text.endswith(".") else f"{text}.")


def _row(entry: Entry) -> str:
    default = "**required**" if entry.required else f"`{entry.default}`" if entry.default is not None else "—"
    change = "reloads" if entry.reloads else "restart"
    return f"| `{entry.name}` | {_cell(entry.type)} | {default} | {change} | {_cell(entry.doc)} |"


def _cell(text: str) -> str:
    """Signs that Markdown would take for its own."""
    pieces = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(
        p if p.startswith("`") else p.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for p in pieces
    )


def metrics() -> str:
    """docs/metrics.md."""
    parts = [_METRICS]
    kinds: Mapping[str, tuple[MetricName, ...]] = {"Counters": COUNTERS, "Gauges": GAUGES, "Histograms": HISTOGRAMS}
    for kind, names in kinds.items():
        parts += [f"## {kind}", "", "| metric | labels | what it counts, and what to do |", "|---|---|---|"]
        for name in names:
            labels = ", ".join(f"`{label}`" for label in TABLE[name].labels)
            parts.append(f"| `{name}` | {labels} | {_cell(TABLE[name].help)} |")
        parts.append("")
    return "\n".join(parts)


def with_examples(page: str) -> str:
    """The page with each example as the encoders write it. Raises KeyError for an example that none makes."""
    known = examples()
    return _EXAMPLE.sub(lambda match: f"{match['head']}{known[match['name']]}\n```", page)


_RIGHTS = re.compile(r"(?P<head><!-- rights: (?P<name>[a-z ]+) -->\n\n).*?(?P<tail>\n<!-- end of rights -->)", re.S)


def with_rights(page: str) -> str:
    """The page with the tables of replicator/rights/table.py."""
    return _RIGHTS.sub(lambda match: f"{match['head']}{_rights_table(match['name'])}{match['tail']}", page)


def _rights_table(name: str) -> str:
    if name.startswith("optional of "):
        who = name.removeprefix("optional of ")
        left_out = [f"| {one.text} | {one.without} |" for one in OPTIONAL if one.who == who]
        return "\n".join([f"| missing right of {who}, optional | what is left out |", "|---|---|", *left_out, ""])
    of_kafka = [(one.who, one.on or "none", ", ".join(one.operations)) for one in KAFKA]
    of_aws = [(one.who, one.resource, ", ".join(one.actions)) for one in IAM]
    head, rows = {"kafka": ("operations", of_kafka), "iam": ("actions", of_aws)}[name]
    lines, before = [f"| who | resource | {head} |", "|---|---|---|"], ""
    for who, resource, allowed in rows:
        lines.append(f"| {who if who != before else ''} | {resource} | {allowed} |".replace("|  |", "| |"))
        before = who
    return "\n".join([*lines, ""])


_FINDINGS = re.compile(r"(?P<head><!-- findings -->\n\n).*?(?P<tail>\n<!-- end of findings -->)", re.S)


def with_findings(page: str) -> str:
    """The page with every finding that the checks of replicator/doctor/ have."""
    return _FINDINGS.sub(lambda match: f"{match['head']}{_findings()}{match['tail']}", page)


def _findings() -> str:
    kinds = sorted(KINDS.values(), key=lambda kind: kind.name)
    rows = [f"| `{one.name}` | {one.severity} | {_cell(one.why)} | {_cell(one.remedy)} |" for one in kinds]
    return "\n".join(["| finding | | why it matters | what to do |", "|---|---|---|---|", *rows, ""])


def named_examples(page: str) -> list[str]:
    return [match["name"] for match in _EXAMPLE.finditer(page)]


def main() -> None:
    docs = ROOT / "docs"
    (docs / "configuration.md").write_text(configuration(), encoding="utf-8")
    (docs / "metrics.md").write_text(metrics(), encoding="utf-8")
    for name, text in dashboards.files():
        (dashboards.FOLDER / name).write_text(text, encoding="utf-8")
    rights = docs / "rights.md"
    rights.write_text(with_rights(rights.read_text(encoding="utf-8")), encoding="utf-8")
    doctor = docs / "doctor.md"
    doctor.write_text(with_findings(doctor.read_text(encoding="utf-8")), encoding="utf-8")
    formats = docs / "formats.md"
    formats.write_text(with_examples(formats.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
