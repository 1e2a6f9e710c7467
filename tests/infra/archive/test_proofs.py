"""When the archive was last proven: written by `verify`, read by `status`."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from formats.segment import SourcePartition
from infra.archive.proofs import Proof, ProofStore, decode, encode, read_each
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.fakes.executors import HandExecutor

T0 = datetime(2026, 3, 5, tzinfo=UTC)
NOW = T0 + timedelta(minutes=100)


def source(partition: int, topic: str = "t", incarnation: str = "", region: str = "a") -> SourcePartition:
    return SourcePartition(region, topic, partition, incarnation)


def proof(minutes: int, *, is_whole: bool = True) -> Proof:
    return Proof(at=T0 + timedelta(minutes=minutes), next_offset=minutes, is_whole=is_whole)


def test_proofs_are_stored_below_the_region_of_the_file() -> None:
    """A prefix has one owner, and a proof of this copy does not hold for its original."""
    objects = MemoryObjectStore()
    ProofStore(objects, "data", "b").record({source(0): proof(1)}, NOW)
    assert [item.key for item in objects.list("")] == ["data/b/_control/v1/proven/a/t/00000000000000000001"]
    assert read_each(ProofStore(objects, "data", "a"), [("a", "t")], HandExecutor()).proofs == {}
    assert read_each(ProofStore(objects, "data", "b"), [("a", "t")], HandExecutor()).proofs == {source(0): proof(1)}


def test_only_requested_paths_are_read() -> None:
    store = ProofStore(MemoryObjectStore(), "data", "a")
    store.record({source(0): proof(1), source(0, "u"): proof(2), source(1, "t", "id"): proof(3)}, NOW)
    assert read_each(store, [("a", "t"), ("a", "t@id"), ("a", "never")], HandExecutor()).proofs == {
        source(0): proof(1),
        source(1, "t", "id"): proof(3),
    }


def test_proofs_that_cannot_be_decoded_are_unknown_and_named() -> None:
    """Those of other archive paths are read all the same."""
    objects, key = MemoryObjectStore(), f"data/a/_control/v1/proven/a/t/{7:020d}"
    store = ProofStore(objects, "data", "a")
    store.record({source(0): proof(1), source(0, "u"): proof(2)}, NOW)
    objects.put_new(key, io.BytesIO(b"damaged"), 7)
    found = read_each(store, [("a", "t"), ("a", "u")], HandExecutor())
    assert found.proofs == {source(0, "u"): proof(2)}
    (problem,) = found.problems
    assert problem.startswith(f"when a/t was last verified is not known: {key}: not proofs of partitions: b'damaged'")
    assert problem.endswith("; delete that object, and run `replicator verify` again")
    with pytest.raises(MalformedEvent, match=f"^{key}: not proofs"):
        store.proofs("a", "t")
    with pytest.raises(MalformedEvent, match=f"^{key}: not proofs"):
        store.record({source(0): proof(1)}, NOW)


def test_a_proof_by_a_clock_that_was_ahead_hides_no_later_one() -> None:
    """`status` went on saying that the partition was whole."""
    store = ProofStore(MemoryObjectStore(), "data", "a")
    ahead = proof(60 * 24 * 365)
    store.record({source(0): ahead, source(1): ahead}, ahead.at)
    store.record({source(0): proof(90, is_whole=False)}, NOW)
    assert store.proofs("a", "t") == {0: proof(90, is_whole=False), 1: ahead}
    store.record({source(0): proof(80)}, NOW)
    assert store.proofs("a", "t")[0] == proof(90, is_whole=False), "it began before"


RECORDS = st.lists(
    st.dictionaries(st.integers(0, 4), st.builds(proof, st.integers(0, 99), is_whole=st.booleans()), max_size=3),
    max_size=6,
)


@given(RECORDS)
@settings(deadline=None)
def test_each_partition_keeps_its_latest_proof(records: list[dict[int, Proof]]) -> None:
    objects = MemoryObjectStore()
    store, wanted = ProofStore(objects, "data", "a"), dict[int, Proof]()
    for record in records:
        store.record({source(p): one for p, one in record.items()}, NOW)
        for p, one in record.items():
            if p not in wanted or wanted[p].at <= one.at:
                wanted[p] = one
    assert store.proofs("a", "t") == wanted
    assert len(list(objects.list(""))) == (1 if wanted else 0), "those before were removed"


@given(st.dictionaries(st.integers(0, 99), st.builds(proof, st.integers(0, 99), is_whole=st.booleans())))
@settings(deadline=None)
def test_written_and_read_back(proofs: dict[int, Proof]) -> None:
    assert decode(encode(proofs)) == proofs


NAIVE = b'{"partitions":{"0":{"at":"2026-01-01T00:00:00","next_offset":1,"whole":true}},"v":1}'


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"v":2,"partitions":{}}', b'{"v":1,"partitions":{"x":{}}}', NAIVE]
)
def test_malformed_proofs_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode(data)
