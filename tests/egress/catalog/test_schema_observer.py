"""Observing a schema registry: whatever changed since, the next generation is what is there now."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.catalog.schema_observer import WHOLE_EVERY, SchemaObserver
from formats.control.schemas import Schema, SchemaSnapshot
from formats.errors import RegistryRefused, RegistryUnavailable
from infra.kafka.cluster.schema_registry import RestSchemaRegistry
from tests.examples import property_examples
from tests.fakes.schema_registry import FakeRegistry

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOON = timedelta(minutes=1)
SUBJECTS, TEXTS = ("a", "b", "c"), ('"int"', '"long"', '"string"')


@dataclass
class Place:
    """A registry that is observed."""

    fake: FakeRegistry = field(default_factory=FakeRegistry)

    def observe(
        self, before: SchemaSnapshot | None = None, after: timedelta = SOON, whole_at: datetime | None = T0
    ) -> SchemaSnapshot:
        """`after`: the time since `before`, and since all versions were read at `whole_at`."""
        self.fake.requests.clear()
        found = SchemaObserver(RestSchemaRegistry(self.fake.send, ""), "w", whole_at).observe(before, T0 + after)
        return replace(found, observed_at=T0)


@pytest.fixture
def place() -> Place:
    return Place()


def steps(*whats: str) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    one = st.tuples(st.sampled_from(whats), st.sampled_from(SUBJECTS), st.sampled_from(TEXTS))
    return st.lists(one, max_size=8)


any_steps = steps("add", "hide", "purge", "purge last", "level")


def change(fake: FakeRegistry, what: str, subject: str, text: str) -> None:
    versions = fake.subjects.get(subject, {})
    if what == "add":
        fake.add(subject, text)
    elif what == "hide" and versions:
        fake.hide(subject, max(versions))
    elif what == "purge":  # deleted for good: it begins again with version 1
        fake.subjects.pop(subject, None)
        fake.levels.pop(subject, None)
    elif what == "purge last" and len(versions) > 1:  # its number is given once more
        fake.subjects[subject].pop(max(versions))
    elif what == "level":
        fake.levels[subject] = "FULL"


@property_examples()
@given(before=any_steps, after=steps("add", "hide", "level"))
def test_what_was_known_before_changes_nothing(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]]
) -> None:
    compare(before, after, SOON)


@property_examples()
@given(before=any_steps, after=any_steps)
def test_after_an_hour_it_changes_nothing_whatever_was_deleted_for_good(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]]
) -> None:
    compare(before, after, WHOLE_EVERY)


def compare(before: list[tuple[str, str, str]], changes: list[tuple[str, str, str]], after: timedelta) -> None:
    place = Place()
    fake = place.fake
    for one in before:
        change(fake, *one)
    known = place.observe()
    for one in changes:
        change(fake, *one)
    found, anew = place.observe(known, after), place.observe()
    assert found == anew
    assert [one.version for one in found.versions] == [
        v for s in sorted(fake.subjects) for v in sorted(fake.subjects[s])
    ]
    assert {one.id: fake.schemas[one.id] for one in found.versions} == found.schemas
    assert found.subject_compatibility == {s: level for s, level in fake.levels.items() if s in fake.subjects}


def test_everything_is_read_at_the_start(place: Place) -> None:
    """An earlier process may have missed a change."""
    place.fake.add("a", TEXTS[0])
    place.fake.add("a", TEXTS[1])
    known = place.observe()
    place.fake.subjects.pop("a")
    place.fake.add("a", TEXTS[2])
    place.fake.add("a", TEXTS[1])
    assert place.observe(known) == known, "seen later"
    assert place.observe(known, whole_at=None) == place.observe() != known


def test_only_new_versions_are_read_whole(place: Place) -> None:
    for n in range(20):
        place.fake.add("a", f'"{n}"')
    first = place.observe()
    assert len([one for one in place.fake.requests if "/versions/" in one]) == 20
    assert place.observe(first) == first
    assert len(place.fake.requests) == 4 + 3
    place.fake.add("a", '"new"')
    assert [one.version for one in place.observe(first).versions] == list(range(1, 22))
    assert len([one for one in place.fake.requests if "/versions/" in one]) == 2


def test_a_version_whose_number_was_given_once_more_is_read_again(place: Place) -> None:
    for text in TEXTS[:2]:
        place.fake.add("a", text)
    known = place.observe()
    place.fake.subjects["a"].pop(2)
    for text in (TEXTS[2], '"bytes"'):
        place.fake.add("a", text)
    assert place.observe(known) == place.observe()


def test_other_contexts_are_left_out_since_their_ids_are_others(place: Place) -> None:
    place.fake.add("a", TEXTS[0])
    place.fake.add(":.dr:a", TEXTS[1])
    place.fake.levels[":.dr:a"] = "FULL"
    found = place.observe()
    assert found.subjects == {"a"}
    assert [one.text for one in found.schemas.values()] == [TEXTS[0]]
    assert found.subject_compatibility == {}


def test_versions_that_are_listed_and_not_shown_are_named(place: Place) -> None:
    place.fake.hides_deleted_subjects = True
    for subject in SUBJECTS:
        place.fake.add(subject, TEXTS[0])
    assert place.observe().problems == {}
    place.fake.hide("a", 1)
    place.fake.hide("b", 1)
    for found in (place.observe(), place.observe(place.observe(after=WHOLE_EVERY))):
        assert found.subjects == {"c"}
        assert list(found.problems) == ["versions"]
        assert found.problems["versions"].startswith("a 1, b 1: the registry lists them and does not show them")


@pytest.mark.parametrize("whole_at", [T0, None])
def test_a_version_that_is_hidden_since_it_is_soft_deleted_stays_as_it_was(
    place: Place, whole_at: datetime | None
) -> None:
    """Records carry its id, and the copy is all that a target has of its schema."""
    place.fake.hides_deleted_subjects = True
    for subject, text in zip(SUBJECTS, TEXTS, strict=True):
        place.fake.add(subject, text)
    known = found = place.observe()
    place.fake.hide("a", 1)
    for _ in range(2):
        found = place.observe(found, whole_at=whole_at)
        assert found.versions == tuple(replace(one, is_deleted=one.subject == "a") for one in known.versions)
        assert (found.schemas, found.problems) == (known.schemas, {})
    place.fake.schemas[place.fake.subjects["a"][1].id] = Schema(text='"bytes"')
    place.fake.add("c", '"bytes"')  # the registry began anew: the id is another schema there
    anew = place.observe(found, whole_at=whole_at)
    assert (set(anew.subjects), list(anew.problems)) == ({"b", "c"}, ["versions"])
    place.fake.subjects.pop("a")
    gone = place.observe(found, whole_at=whole_at)
    assert (set(gone.subjects), dict(gone.problems)) == ({"b", "c"}, {})


def test_what_is_registered_between_two_requests_is_not_deleted() -> None:
    for number in range(8):  # before the nth request
        fake = FakeRegistry()
        fake.add("a", TEXTS[0])
        requests = iter(range(100))

        def send(*request: Any, at: int = number, fake: FakeRegistry = fake, requests: Any = requests) -> Any:
            if next(requests) == at:
                fake.add("a", TEXTS[1])
                fake.add("b", TEXTS[2])
            return fake.send(*request)

        found = SchemaObserver(RestSchemaRegistry(send, ""), "w").observe(None, T0)
        assert not any(one.is_deleted for one in found.versions), number


def test_a_registry_that_cannot_be_read_is_no_empty_one(place: Place) -> None:
    place.fake.add("a", TEXTS[0])
    known = place.observe()
    place.fake.refusing = (403, 40301, "no right")
    with pytest.raises(RegistryRefused, match="no right"):
        place.observe(known)
    place.fake.refusing = (503, 50301, "away")
    with pytest.raises(RegistryUnavailable, match="away"):
        place.observe(known)
