from __future__ import annotations

import pytest
import typer

from formats.segment import SourcePartition
from replicator.config import IngressSettings
from replicator.terminal.output import table
from replicator.terminal.source_names import destination_of, instant, key_of, one_partition, source_name
from tests.ingress.world import source_settings


@pytest.mark.parametrize("text", ["a/t", "a/t/0", "a/t/12", "a/t@life", "a/t@life_-x/3"])
def test_names_are_read_as_they_are_printed(text: str) -> None:
    assert str(source_name(text)) == text


@pytest.mark.parametrize(
    "text", ["", "a", "a/", "/t", "a/t/", "a/t/x", "a/t/-1", "a/t/1/2", "a b/t", "a/t@/x", "a/_control"]
)
def test_illegal_names_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="REGION/TOPIC"):
        source_name(text)


def test_a_topic_names_all_its_partitions() -> None:
    one, other = SourcePartition("a", "t", 1), SourcePartition("a", "t", 1, "life")
    assert one in source_name("a/t")
    assert one in source_name("a/t/1")
    assert one not in source_name("a/t/2")
    assert other not in source_name("a/t")
    assert other in source_name("a/t@life")


def test_one_partition() -> None:
    assert one_partition("a/t@life/3") == SourcePartition("a", "t", 3, "life")
    with pytest.raises(typer.BadParameter, match="no partition"):
        one_partition("a/t")


def test_times_need_a_zone() -> None:
    assert instant("2026-01-31T12:00:00Z").isoformat() == "2026-01-31T12:00:00+00:00"
    for text in ("2026-01-31T12:00:00", "yesterday"):
        with pytest.raises(typer.BadParameter, match="time"):
            instant(text)


def test_a_table() -> None:
    assert table(("name", "lag"), [("a", 5), ("long", None), ("b", 12345)]) == (
        "name    lag\na         5\nlong      -\nb     12345"
    )
    assert table(("x",), []) == "x"


@pytest.mark.parametrize(
    ("on_recreate", "wanted"), [("stop", "copy"), ("follow", "copy"), ("new-topic", "copy.LifeLife")]
)
def test_the_destination_of_a_later_incarnation(on_recreate: str, wanted: str) -> None:
    settings = IngressSettings(sources=(source_settings(on_recreate=on_recreate),))
    life = SourcePartition("a", "t", 0, "LifeLifeLife")
    assert destination_of(settings, source_name("a/t/0"), None) == "copy"
    assert destination_of(settings, source_name("a/t@LifeLifeLife"), None) == wanted
    assert key_of(settings, life, None).destination_topic == wanted
    assert key_of(settings, life, "elsewhere").destination_topic == "elsewhere"
    with pytest.raises(typer.BadParameter, match="--to"):
        destination_of(settings, source_name("b/t"), None)
