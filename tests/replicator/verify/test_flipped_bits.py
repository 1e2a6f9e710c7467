"""Any single flipped bit of an archive: `verify` names the object, and a restore fails that partition at most."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from formats.segment import Segment, SourcePartition
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from replicator.verify.verifier import ArchiveVerdict, Verifier
from tests.examples import machine
from tests.ingress.world import FORMAT, REGION, World
from tests.replicator.restore.restoring import TARGETS, Restoring, restorable

SOURCES = [SourcePartition(REGION, "t", partition) for partition in (0, 1)]


def archive(world: World) -> list[Segment]:
    """Segments of every kind: a single one, one that a merged segment holds too, a merged one, one of another
    partition."""
    level_0 = [world.put(10 * n, 10 * n + 9, holes=(10 * n + 3,)) for n in range(5)]
    return [*level_0, world.put(0, 19, level=1, holes=(3, 13)), world.put(0, 19, partition=1, holes=(3, 13))]


WHOLE = restorable()
SEGMENTS = archive(WHOLE)
BODIES: Mapping[Segment, bytes] = {s: WHOLE.objects.memory.open(f"data/{s}").read() for s in SEGMENTS}
Restoring(WHOLE).finish()
INTACT = [WHOLE.target.records(target) for target in TARGETS[:2]]


def verdict(world: World, source: SourcePartition) -> ArchiveVerdict:
    control = ControlStore(world.objects.memory, "data")
    verifier = Verifier(stored=Archive(world.peek, control, FORMAT), clock=world.clock)
    return verifier.archive(source, {}, read_again_after=None)


@machine(100)
@given(st.data())
def test_a_flipped_bit_is_named_and_no_record_is_changed(data: st.DataObject) -> None:
    segment = data.draw(st.sampled_from(SEGMENTS))
    body = bytearray(BODIES[segment])
    at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
    body[at] ^= 1 << bit
    world = restorable()
    for one, stored in BODIES.items():  # as `archive` makes it, without encoding it again
        world.objects.memory.replace(f"data/{one}", stored)
        world.notify(one)
    world.damage(segment, bytes(body))

    found = [verdict(world, source) for source in SOURCES]
    named = [s for one in found for s in one.corrupt]
    assert named in ([], [segment])

    restoring = Restoring(world)
    restoring.finish()
    assert restoring.failed.keys() <= ({segment.source.partition} if named else set())
    for number, wanted in enumerate(INTACT):
        delivered = world.target.records(TARGETS[number])
        if number in restoring.failed:
            assert str(segment) in restoring.failed[number]
            assert delivered == wanted[: len(delivered)]
        else:
            assert delivered == wanted
