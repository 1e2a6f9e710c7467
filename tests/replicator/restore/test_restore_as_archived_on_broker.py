"""Destinations as the archive has them, and destinations that are emptied, on a real cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from formats.segment import OffsetRange
from infra.kafka.cluster.admin_connection import AdminConnection
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from tests.replicator.restore.history import Archive, Choice, History, Stored
from tests.replicator.restore.place import Commands, Place, expected
from tests.replicator.restore.published import acl, acls_of, publish

pytestmark = pytest.mark.integration

WHOLE = Archive([History(p, "", [Stored(OffsetRange(0, 29), 0)], [], set()) for p in range(2)], has_second_life=False)
ALL = Choice().answer(WHOLE)


def test_created_as_archived(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    reader = place.unique("reader")
    publish(place, 1, old, reader, segment_bytes="2000000", retention_ms="5000")
    # a broker without tiered storage refuses the second one
    publish(place, 2, new, reader, segment_bytes="3000000", remote_storage_enable="true")
    then, now = place.unique("then"), place.unique("now")
    found: dict[str, Any] = {}
    for name, until in ((then, ("--until", "2026-01-15T00:00:00Z")), (now, ())):
        options = ("--rename", f"orders={name}", "--configs", "archive", "--acls", "archive", *until)
        code, plan = commands.json("restore", "orders", *options, "--dry-run")
        assert code == 0, plan
        [found[name]] = plan["topics"]
        code, result = commands.json("restore", "orders", *options)
        assert (code, result["records"]) == (0, sum(map(len, ALL.values()))), result
        assert [place.restored(name, p) for p in range(2)] == [expected(ALL[p]) for p in range(2)]
    assert found[then]["catalog"] == {"generation": 1, "observed_at": old.isoformat()}
    assert found[then]["source_configs"]["held"] == {"retention.ms": "5000"}
    assert found[now]["catalog"]["generation"] == 2
    assert list(found[now]["source_configs"]["refused"]) == ["remote.storage.enable"]

    admin = KafkaCatalogAdmin(AdminConnection(place.cluster.properties, timeout=timedelta(seconds=20)))
    configs = admin.config_values([then, now])
    for name, size in ((then, "2000000"), (now, "3000000")):
        values = configs[name]
        assert not isinstance(values, Exception)
        assert (values["segment.bytes"].value, values["retention.ms"].value) == (size, "-1")
    assert acls_of(place, then, now) == {acl(reader, "READ", then), acl(reader, "READ", now)}


def test_emptied_first(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    name = place.unique("owned")
    place.cluster.create(name, 3, {"retention.ms": "-1"})
    place.cluster.put(name, None, b"theirs")
    options = ["restore", "orders", "--rename", f"orders={name}", "--purge"]

    code, plan = commands.json(*options, "--dry-run", "--yes")
    assert (code, plan["topics"][0]["purged"]) == (0, [{"partition": 0, "offsets": [0, 0]}])
    code, text = commands.run(*options)
    assert (code, f"{name}/0 is emptied: offsets 0-0 are deleted" in text, "add --yes" in text) == (1, True, True), text
    code, text = commands.run(*options[:-1], "--yes")
    assert (code, "--yes confirms --purge" in text) == (2, True), text
    code, text = commands.run(*options[:-1], "--accept", "purge")
    assert (code, "'purge': may be" in text) == (2, True), text
    assert len(place.restored(name, 0)) == 1, "nothing is deleted yet"

    for wanted in (sum(map(len, ALL.values())), 0):
        code, result = commands.json(*options, "--yes")
        assert (code, result["records"]) == (0, wanted), result
        assert [place.restored(name, p) for p in range(3)] == [*(expected(ALL[p]) for p in range(2)), []]
