"""Every property is tried as hard as the others, whether its module says so or not."""

from __future__ import annotations

from hypothesis import settings

from tests.examples import property_examples


def test_a_property_without_settings_has_those_of_the_project() -> None:
    found, wanted = settings.default, property_examples()
    assert found is not None
    assert (found.max_examples, found.deadline) == (wanted.max_examples, None)
