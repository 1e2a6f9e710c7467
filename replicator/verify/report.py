"""The result of a verification as a JSON report in which every change is detected.

    {"entries": [{…, "chain": H(previous chain + this entry)}, …], "chain": the last one, "signature": its HMAC}

The chain is BLAKE2b-256. The signature is HMAC-SHA256 with a key that only verifier and reader have. Pure.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from formats.control.gap import RecordedGap
from formats.errors import DataError
from formats.forks import explain
from formats.segment import OffsetRange
from replicator.verify.verifier import ArchiveVerdict, SourceVerdict, TargetVerdict

VERSION = 1

Verdict = ArchiveVerdict | SourceVerdict | TargetVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`content`: the JSON document, as it is written and as `check` reads it."""

    content: Mapping[str, Any]
    begun_at: datetime

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        entries: Sequence[Mapping[str, Any]] = self.content["entries"]
        return entries

    @property
    def is_equal(self) -> bool:
        """Whether every entry is equal."""
        return bool(self.content["equal"])

    @property
    def has_corrupt(self) -> bool:
        return any(entry.get("corrupt") for entry in self.entries)

    @property
    def has_failed(self) -> bool:
        """Whether a partition could not be verified, since its Spark task failed."""
        return any(entry.get("failed") for entry in self.entries)

    @property
    def summary(self) -> str:
        """One line for people."""
        bad = sum(not entry["equal"] for entry in self.entries)
        result = "everything is as it should be"
        if not self.is_equal:
            result = f"{bad} of {len(self.entries)} are not as they should be"
        signed = "not signed" if self.content["signature"] is None else "signed"
        return f"{result}; chain {self.content['chain'][:16]}, {signed}"


def report(found: Sequence[Mapping[str, Any]], at: datetime, *, program: str, key: bytes = b"") -> Mapping[str, Any]:
    """Make a report of entries. `key` empty: the report is not signed."""
    chain = _link("", {"at": at.isoformat(), "program": program, "v": VERSION})
    entries = []
    for entry in found:
        chain = _link(chain, entry)
        entries.append({**entry, "chain": chain})
    return {
        "v": VERSION,
        "at": at.isoformat(),
        "program": program,
        "entries": entries,
        "equal": _equal(entries),
        "chain": chain,
        "signature": _sign(chain, key) if key else None,
    }


def check(content: Mapping[str, Any], key: bytes = b"") -> None:
    """Raise DataError if the report was changed or, with a key, is not signed with it."""
    try:
        chain = _link("", {"at": content["at"], "program": content["program"], "v": content["v"]})
        for number, entry in enumerate(content["entries"]):
            chain = _link(chain, {name: value for name, value in entry.items() if name != "chain"})
            if chain != entry["chain"]:
                raise DataError(f"entry {number} of the report ({entry.get('source')}) was changed")
        if chain != content["chain"] or content["equal"] != _equal(content["entries"]):
            raise DataError("the report was changed: its end does not follow from its entries")
        if key and not hmac.compare_digest(_sign(chain, key), content["signature"] or ""):
            raise DataError("the report is not signed with this key")
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"not a report of this version: {error!r}") from error


def _equal(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all entries are equal. A report without entries is not equal."""
    return bool(entries) and all(entry["equal"] for entry in entries)


def entry_of(verdict: Verdict) -> dict[str, Any]:
    match verdict:
        case ArchiveVerdict():
            return {
                "kind": "archive",
                "source": str(verdict.source),
                "equal": verdict.is_whole,
                "offsets": _range(verdict.offsets),
                "objects": verdict.objects,
                "size_bytes": verdict.size_bytes,
                "read": len(verdict.read),
                "proven_before": verdict.skipped,
                "records_read": sum(proven.records for proven in verdict.read.values()),
                "digests": {str(segment): proven.digest for segment, proven in verdict.read.items()},
                "corrupt": {str(segment): why for segment, why in verdict.corrupt.items()},
                "disagreeing": list(verdict.disagreeing),
                "unsettled": sorted(map(str, verdict.unsettled)),
                "thinned": list(verdict.subset_pairs),
                "missing": [_range(gap) for gap in verdict.missing],
                "recorded_gaps": _gaps(verdict.recorded),
                "forks": [explain(fork) for fork in verdict.forks],
                "unreadable": verdict.unreadable,
            }
        case SourceVerdict():
            found = verdict.comparison
            return {
                "kind": "source",
                "source": str(verdict.source),
                "topic": str(verdict.topic),
                "equal": verdict.is_equal,
                "offsets": _range(verdict.offsets),
                "records": found.both,
                "only_in_archive": found.only_first,
                "only_in_source": found.only_second,
                "differs_at": found.offset,
                "differs_in": found.column,
                "missing": [_range(gap) for gap in verdict.missing],
                "recorded_gaps": _gaps(verdict.recorded),
                "unreadable": verdict.unreadable,
            }
        case TargetVerdict():
            result = verdict.result
            return {
                "kind": "target",
                "source": str(verdict.source),
                "target": str(verdict.target),
                "equal": verdict.is_equal,
                "records": result.same if result else 0,
                "wanted": _side(result.first if result else None),
                "found": _side(result.second if result else None),
                "difference": result.difference.text if result and result.difference else "",
                "transform": verdict.transform,
                "without_header": verdict.without_header,
                "unreadable": verdict.unreadable,
            }


def line_of(entry: Mapping[str, Any]) -> str:
    """One entry for people."""
    mark = "ok  " if entry["equal"] else "BAD "
    match entry["kind"]:
        case "archive":
            parts = [
                f"{entry['objects']:,} objects, {entry['read']:,} read, {entry['proven_before']:,} proven before",
                *(f"corrupt: {name}: {why}" for name, why in entry["corrupt"].items()),
                *(f"differ: {what}" for what in entry["disagreeing"]),
                *(f"missing: {_shown(gap)}" for gap in entry["missing"]),
                *(f"recorded gap: {_shown(gap)} ({gap[2]})" for gap in entry["recorded_gaps"]),
                *entry["forks"],
                *([entry["unreadable"]] if entry.get("unreadable") else []),
            ]
            return f"{mark}archive {entry['source']} {_shown(entry['offsets'])}: {'; '.join(parts)}"
        case "source":
            parts = [f"{entry['records']:,} records equal"]
            if entry["differs_at"] is not None:
                parts.append(f"offset {entry['differs_at']} differs in {entry['differs_in']}")
            if entry["only_in_source"]:
                parts.append(f"{entry['only_in_source']:,} are not in the archive")
            if entry["only_in_archive"]:
                parts.append(f"{entry['only_in_archive']:,} are in the archive only")
            parts += [f"missing: {_shown(gap)}" for gap in entry["missing"]]
            parts += [f"recorded gap: {_shown(gap)} ({gap[2]})" for gap in entry["recorded_gaps"]]
            parts += [entry["unreadable"]] if entry["unreadable"] else []
            return f"{mark}archive {entry['source']} = {entry['topic']} {_shown(entry['offsets'])}: {'; '.join(parts)}"
        case _:
            wanted, found = entry["wanted"], entry["found"]
            if entry["unreadable"] and not wanted and not found:
                return f"{mark}{entry['source']} and {entry['target']} are not compared: {entry['unreadable']}"
            parts = [f"{entry['records']:,} records equal"]
            parts += [f"after transform {entry['transform']}"] if entry.get("transform") else []
            parts += [f"without header {entry['without_header']}"] if entry.get("without_header") else []
            parts += [entry["difference"]] if entry["difference"] else []
            parts += [entry["unreadable"]] if entry["unreadable"] else []
            sides = f"{_shown(wanted and wanted['offsets'])} = {entry['target']} {_shown(found and found['offsets'])}"
            digest = f", digest {found['content']}" if entry["equal"] and found else ""
            return f"{mark}{entry['source']} {sides}: {'; '.join(parts)}{digest}"


def _side(side: Any) -> Mapping[str, Any] | None:
    if side is None:
        return None
    offsets = None if side.first_offset is None else [side.first_offset, side.last_offset]
    return {"records": side.count, "offsets": offsets, "content": side.digest.content, "whole": side.digest.whole}


def _range(offsets: OffsetRange | None) -> list[int] | None:
    return None if offsets is None else [offsets.start, offsets.end]


def _gaps(recorded: Sequence[RecordedGap]) -> list[list[object]]:
    return [[gap.offsets.start, gap.offsets.end, gap.reason] for gap in recorded]


def _shown(offsets: Sequence[int] | None) -> str:
    return "nothing" if not offsets else f"[{offsets[0]},{offsets[1]}]"


def _link(before: str, entry: Mapping[str, Any]) -> str:
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(f"{before}\n{text}".encode(), digest_size=32).hexdigest()


def _sign(chain: str, key: bytes) -> str:
    return hmac.new(key, chain.encode(), "sha256").hexdigest()
