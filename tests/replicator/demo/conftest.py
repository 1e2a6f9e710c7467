"""Flights for the tests of the demo."""

from __future__ import annotations

import pytest

from replicator.demo.flights import flights
from tests.formats.sample_records import Row, rows_of
from tests.replicator.demo.few_flights import FEW, numbered


@pytest.fixture(scope="module")
def some_rows() -> list[Row]:
    """Twelve flights: one without a tail number, and one that never left."""
    found = rows_of([flights(FEW)])
    unknown = next(row for row in found if row["key"] is None)
    grounded = next(row for row in found if ("dep_delay", None) in row["headers"] and row is not unknown)
    return numbered([*found[:10], unknown, grounded])
