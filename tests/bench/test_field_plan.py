"""What `bench.field` measures, and where."""

from __future__ import annotations

from pathlib import Path

from bench import child
from bench.data import RecordKind, records
from bench.fidelity import of_records
from bench.field_plan import COUNTS, NAMES, PROGRAMS, SERVERS, FieldPlan
from bench.field_report import TARGETS
from bench.profile import plans


def rows(plan: FieldPlan) -> set[tuple[str, RecordKind, int, str]]:
    return {
        (server, kind, partitions, program)
        for server in plan.servers
        for kind, partitions, programs in plan.rows(server)
        for program in programs
    }


def test_by_default_every_kind_of_records_and_every_number_of_partitions_has_rows() -> None:
    found = rows(FieldPlan())
    assert {kind for _, kind, _, _ in found} == set(COUNTS) == set(NAMES)
    assert {server for server, _, _, _ in found} == set(SERVERS)
    for server in ("moto", "versitygw"):
        assert {partitions for one, kind, partitions, _ in found if (one, kind) == (server, "json")} == {1, 6, 200}
    assert {(server, program) for server, kind, _, program in found if kind == "flights"} == {("folder", "merge")}


def test_every_target_has_a_row() -> None:
    measured = {(NAMES[kind], program) for _, kind, _, program in rows(FieldPlan())}
    assert {(target.data, target.name) for target in TARGETS} <= measured
    assert ("folder", "json", 6, "egress") in rows(FieldPlan())
    assert ("folder", "json", 6, "ingress") in rows(FieldPlan())


def test_a_choice_leaves_the_rest_out() -> None:
    assert rows(FieldPlan(servers=("moto",), data=("json",), partitions=(1,), only=("egress", "merge"))) == {
        ("moto", "json", 1, "egress")
    }
    profiled = FieldPlan.profiled(1000, ("restore",))
    assert list(profiled.rows("moto")) == [("json", 6, ["restore"])]
    assert profiled.quarter("json", 6) * 4 == 984  # 1000, in quarters that six partitions share


def test_flights_are_those_of_the_demo() -> None:
    made = records("flights", 1000, 1)
    assert len(made.values) == 1000
    assert all(value.startswith(b"{") for value in made.values)
    assert [name for name, _ in made.headers[0] or ()] == ["carrier", "airport", "airport", "dep_delay"]
    assert of_records(made)[0].values.count == 1000


def test_code_before_a_program_runs_in_its_process(tmp_path: Path) -> None:
    log, spec = tmp_path / "log", {"kind": "small", "records": 100, "segment_records": 100}
    before = "import sys; print('first', sys.argv[1:], file=sys.stderr)"
    found = child.run("bench.field_programs", "codec", spec, log=log, timeout_seconds=60, before=before)
    assert found.other["records"] == 100
    assert log.read_text().startswith("first ['codec']")


def test_each_program_has_a_profile() -> None:
    found = [
        (server, kind, name)
        for server, plan in plans(1000, PROGRAMS)
        for kind, _, names in plan.rows(server)
        for name in names
    ]
    assert found == [("moto", "json", name) for name in PROGRAMS[:3]] + [("folder", "json", "merge")]
    assert [server for server, _ in plans(1000, ["merge"])] == ["folder"]
