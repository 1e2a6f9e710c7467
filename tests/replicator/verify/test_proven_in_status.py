"""`verify` records what it proved and `status` shows it; without write permission there is only a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from formats.control import keys as control_objects
from formats.control.claim import TopicClaim
from formats.segment import OffsetRange, Segment, format_key
from infra.archive.control import ControlStore
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.stack import LocalStack
from replicator import main
from tests.processes.harness import to_toml
from tests.processes.s3_proxy import Answer, proxied
from tests.replicator.restore.history import REGION, Archive, History, Stored
from tests.replicator.restore.place import Place

pytestmark = pytest.mark.integration

STORED = [Stored(OffsetRange(start, start + 19), 0) for start in (0, 20, 40)]
WHOLE = Archive([History(p, "", STORED, [], set()) for p in range(2)], has_second_life=False)


class Desk:
    """An archived topic, and the commands for it."""

    def __init__(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.topic, self._capsys = place, place.unique("orders"), capsys
        place.cluster.create(self.topic, 2)
        WHOLE.write(place.objects, self.topic)
        facts = KafkaAdmin({"bootstrap.servers": place.cluster.broker.bootstrap}).describe([self.topic])[self.topic]
        claim = TopicClaim(topic_id=facts.topic_id, cluster_id="c", number=0, claimed_at=datetime.now(UTC))
        place.objects.delete_many([control_objects.claim_key("data", REGION, self.topic)])  # what was written is of it
        ControlStore(place.objects, "data").claims.record(REGION, self.topic, claim)

    def file(self, endpoint_url: str = "") -> Path:
        s3 = {**self.place.tables["s3"], "secret_access_key": "${SECRET}"}
        s3 |= {"endpoint_url": endpoint_url} if endpoint_url else {}
        egress = {"group_id": self.topic, "topics": {self.topic: {}}}
        file = self.place.folder / "replicator.toml"
        file.write_text(to_toml({**self.place.tables, "s3": s3, "egress": egress}), encoding="utf-8")
        return file

    def run(self, *arguments: str, endpoint_url: str = "") -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "--config", str(self.file(endpoint_url))])
        assert isinstance(caught.value.code, int | None)
        return (caught.value.code or 0, *self._capsys.readouterr())

    @property
    def shown(self) -> str:
        """What `status` shows of the topic."""
        code, text, err = self.run("status")
        assert code in (0, 3), err
        head, row = text.splitlines()[3:5]
        assert row.startswith(f"{self.topic} ")
        return row[head.index("proven") :].split("  ")[0].strip()

    def damage(self, stored: Stored) -> None:
        key = format_key("data", Segment(WHOLE.histories[0].source(self.topic), stored.level, stored.offsets))
        client, bucket = self.place.client, self.place.bucket
        body = bytearray(client.get_object(Bucket=bucket, Key=key)["Body"].read())
        body[len(body) // 3] ^= 4
        client.put_object(Bucket=bucket, Key=key, Body=bytes(body))

    def remove(self, stored: Stored) -> None:
        key = format_key("data", Segment(WHOLE.histories[0].source(self.topic), stored.level, stored.offsets))
        self.place.objects.delete_many([key])


@pytest.fixture
def desk(
    stack: LocalStack,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Desk]:
    monkeypatch.setenv("SECRET", "test")
    with closing(Place(stack, unique, tmp_path)) as place:
        yield Desk(place, capsys)


def problems(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("! ") and "the topic at" not in line]


def proven(desk: Desk) -> list[Any]:
    status = json.loads(desk.run("status", "--json")[1])
    return [p["proven"] for p in status["egress"]["partitions"]]


def test_status_shows_proofs_their_age_and_failures(desk: Desk) -> None:
    assert desk.shown == "never"
    assert desk.run("verify", desk.topic, "--partition", "0")[0] == 0
    assert desk.shown == "in part"
    assert desk.run("verify", desk.topic)[0] == 0
    assert desk.shown.endswith(" ago")
    assert [(p["whole"], p["next_offset"]) for p in proven(desk)] == [(True, 60), (True, 60)]

    desk.damage(STORED[1])
    assert desk.run("verify", desk.topic, "--no-record")[0] == 3
    assert [p["whole"] for p in proven(desk)] == [True, True]
    assert desk.run("verify", desk.topic)[0] == 3
    code, text, _ = desk.run("status")
    assert code == 3
    (problem,) = problems(text)
    assert problem.startswith(f"! {REGION}/{desk.topic}/0: verify found it not whole at ")
    assert desk.shown == "not whole"


def test_without_write_permission_it_verifies_and_prints_a_message(desk: Desk) -> None:
    with proxied(desk.place.stack.moto.endpoint_url) as proxy:
        proxy.break_("PutObject", Answer(403, "AccessDenied"))
        code, text, err = desk.run("verify", desk.topic, endpoint_url=proxy.endpoint_url)
    assert (code, "everything is as it should be" in text) == (0, True)
    assert "`status` will not know of this proof" in err
    assert f"s3://{desk.place.bucket}/data/{REGION}/_control/v1/proven/*, or pass --no-record" in err
    assert desk.shown == "never"


def test_an_object_that_is_gone_from_the_middle(desk: Desk) -> None:
    """Delete an object from the middle of the archive, then run `status`."""
    desk.remove(STORED[1])
    code, text, _ = desk.run("status")
    assert code == 3
    (problem,) = problems(text)
    assert problem.startswith(f"! {REGION}/{desk.topic}/0: offsets [20,39] of the archive are in no segment")
