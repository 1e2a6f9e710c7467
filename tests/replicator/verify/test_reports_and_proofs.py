"""Reports and proven objects of a verification, for the Python API as for the command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import ConfigError
from formats.segment import OffsetRange, Segment, SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.proofs import ProofStore
from replicator.selection import Selection
from replicator.verify import ProvenObjects, Report, Verification
from replicator.verify.proven import Proven, load_proven
from replicator.verify.report import check, report
from tests.replicator.restore.history import REGION, Archive, History, Stored
from tests.replicator.restore.place import Place

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SEGMENTS = [Segment(SourcePartition("a", "t", 0), 0, OffsetRange(n, n)) for n in range(5)]
WHOLE = Archive(
    [History(p, "", [Stored(OffsetRange(n, n + 19), 0) for n in (0, 20)], [], set()) for p in range(2)],
    has_second_life=False,
)


def proven(size_bytes: int) -> Proven:
    return Proven(size_bytes=size_bytes, stored_at=T0, records=1, digest="d", proven_at=T0)


subsets = st.sets(st.sampled_from(SEGMENTS))


@given(st.lists(st.tuples(subsets, subsets, subsets), max_size=4), st.booleans())
def test_proven_objects_are_kept_until_found_bad(
    found: list[tuple[set[Segment], set[Segment], set[Segment]]], fails: bool
) -> None:
    with TemporaryDirectory() as folder:
        path, known = Path(folder, "state.json"), dict[Segment, Proven]()
        kept = ProvenObjects.of(path, "s3://b/data")
        try:
            with kept.kept():
                for number, (read, corrupt, unsettled) in enumerate(found):
                    entry = {"corrupt": {str(s): "why" for s in corrupt}, "unsettled": sorted(map(str, unsettled))}
                    kept.add(entry, dict.fromkeys(read, proven(number)))
                    known |= dict.fromkeys(read, proven(number))
                    known = {s: one for s, one in known.items() if s not in corrupt | unsettled}
                if fails:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        assert kept.objects == known
        assert load_proven(path, "s3://b/data") == known
        assert ProvenObjects.of(path, "s3://b/data").objects == known


def test_without_a_file_nothing_is_kept_for_the_next_one() -> None:
    kept = ProvenObjects()
    with kept.kept():
        kept.add({}, {SEGMENTS[0]: proven(1)})
        kept.save_if_due()
    assert list(kept.objects) == SEGMENTS[:1]


def test_an_undecodable_state_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError):
        ProvenObjects.of(path, "s3://b/data")


def test_a_state_file_of_another_archive_is_refused(tmp_path: Path) -> None:
    """Its objects may have the same names, sizes and times: a copy that keeps times has."""
    path = tmp_path / "state.json"
    with ProvenObjects.of(path, "s3://a/data").kept() as _:
        pass
    assert ProvenObjects.of(path, "s3://a/data").objects == {}
    with pytest.raises(ConfigError, match="it is about s3://a/data, and this is s3://b/data"):
        ProvenObjects.of(path, "s3://b/data")


@given(st.lists(st.booleans(), max_size=5), st.booleans())
def test_the_summary_counts_unequal_entries(equal: list[bool], signed: bool) -> None:
    entries = [{"source": f"a/t/{n}", "kind": "archive", "equal": one} for n, one in enumerate(equal)]
    content = report(entries, T0, program="test", key=b"key" if signed else b"")
    found = Report(content=content, begun_at=T0)
    assert found.is_equal == (bool(equal) and all(equal))
    assert not found.has_corrupt
    wanted = "everything is as it should be"
    if not found.is_equal:
        wanted = f"{equal.count(False)} of {len(equal)} are not as they should be"
    assert found.summary == f"{wanted}; chain {content['chain'][:16]}, {'signed' if signed else 'not signed'}"


@pytest.mark.integration
def test_the_python_api_returns_and_records_the_report(place: Place) -> None:
    topic = place.unique("orders")
    WHOLE.write(place.objects, topic)
    selection, kept, seen = Selection(region=REGION, topics=[TopicPattern(topic)]), ProvenObjects(), list[str]()
    with Verification(place.config, selection) as verification:
        first = verification.run(proven=kept, key=b"key", on_entry=lambda entry: seen.append(entry["source"]))
        again = verification.run(proven=kept)
        verification.record(first)
    check(first.content, b"key")
    assert first.is_equal
    assert seen == [entry["source"] for entry in first.entries] == [f"{REGION}/{topic}/{p}" for p in range(2)]
    assert [(entry["read"], entry["proven_before"]) for entry in first.entries] == [(2, 0)] * 2
    assert [(entry["read"], entry["proven_before"]) for entry in again.entries] == [(0, 2)] * 2
    known = ProofStore(place.objects, "data", REGION).proofs(REGION, topic)
    assert [(known[p].at, known[p].next_offset, known[p].is_whole) for p in range(2)] == [
        (first.begun_at, 40, True)
    ] * 2
