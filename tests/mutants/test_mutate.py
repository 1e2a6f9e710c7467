"""Which mistakes are planted, where, and that the same ones are drawn each time."""

from __future__ import annotations

import textwrap
from fnmatch import fnmatchcase

import pytest

from tests.mutants.guards import ROOT, TABLE, guards_of, modules, nearest
from tests.mutants.jury import Verdict, _verdict
from tests.mutants.mutate import mutants, sample

PACKAGES = ("egress", "ingress", "compaction", "formats")


def planted(body: str, kind: str = "") -> list[str]:
    """Of each mistake what it makes of a function's `body`."""
    text = f"def f(self, a, b, c=None) -> None:\n{textwrap.indent(body, '    ')}\n"
    found = [one.applied(text) for one in mutants("m.py", text) if not kind or one.kind == kind]
    return [textwrap.dedent(made.partition("\n")[2]).rstrip() for made in found]


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("comparison", "x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("comparison", "x = a is not None", ["x = a is None"]),
        ("comparison", "x = a not in b", ["x = a in b"]),
        ("arithmetic", "x = a + b", ["x = a - b"]),
        ("arithmetic", "x = 'a' + b", []),
        ("constant", "x = a[:1]", ["x = a[:2]", "x = a[:0]"]),
        ("constant", "x = 4096", []),
        ("constant", "f(a, b=True)", ["f(a, b=False)"]),
        ("and, or", "x = a and b and c", ["x = a or b and c", "x = a and b or c"]),
        ("negation", "x = not a", ["x = (a)"]),
        ("condition", "if a > b:\n    c()", ["if False:\n    c()", "if True:\n    c()"]),
        ("condition", "x = a if b else c", ["x = a if False else c", "x = a if True else c"]),
        ("condition", "x = [i for i in a if b]", ["x = [i for i in a if True]"]),
        ("condition", "while a:\n    b()", ["while False:\n    b()"]),
        ("statement removed", "a.b()\nc = 1", ["pass\nc = 1"]),
        ("statement removed", "self.a = b", ["pass"]),
        ("statement removed", "a += b", ["pass"]),
        ("raise removed", "raise ValueError(a + b)", ["pass"]),
        ("handler removed", "try:\n    a()\nexcept E:\n    b()", ["try:\n    a()\nexcept E:\n    raise\n    b()"]),
        ("handler removed", "try:\n    a()\nexcept E:\n    raise F", []),
        ("arguments", "x = f(a, b.c, 1)", ["x = f(b.c, a, 1)"]),
        ("arguments", "x = isinstance(a, b)", []),
        ("arguments", "x = f(a, a)", []),
        ("min, any", "x = min(a)", ["x = max(a)"]),
        ("other end", "x = a[-1]", ["x = a[0]"]),
        ("early return", "a = 1\nb = 2", ["return\na = 1\nb = 2"]),
        ("", "log.info(a + 1, b == c)", []),
        ("", "x = f'{a + 1}'", []),
        ("", "assert a == b", []),
        ("", "x = timedelta(seconds=1)", []),
    ],
)
def test_a_mistake_of_each_kind(kind: str, body: str, wanted: list[str]) -> None:
    assert planted(body, kind) == wanted


def test_answers_are_changed_by_their_type() -> None:
    text = "def f() -> {}:\n    return g()\n"
    answers = {
        kind: [m.after for m in mutants("m.py", text.format(kind)) if m.kind == "other answer"]
        for kind in ("bool", "int", "list[int]", "str | None", "str")
    }
    assert answers == {
        "bool": ["not (g())"],
        "int": ["(g()) + 1"],
        "list[int]": ["[]"],
        "str | None": ["None"],
        "str": [],
    }


def test_a_name_stays_when_code_moves() -> None:
    one = "def f(a):\n    return a < 1\n"
    before, after = mutants("m.py", one), mutants("m.py", f"# ключ\nX = 1\n\n\n{one}")
    assert [m.id for m in before] == [m.id for m in after]
    assert len({m.id for m in before}) == len(before)
    assert {m.id for m in before}.isdisjoint(m.id for m in mutants("other.py", one))


def test_the_sample_depends_on_the_seed_alone_and_has_every_kind() -> None:
    found = mutants("m.py", (ROOT / "ingress/sequencer.py").read_text(encoding="utf-8"))
    few = sample(found, 40, 1)
    assert few == sample(list(reversed(found)), 40, 1)
    assert few[:20] == sample(found, 20, 1)
    assert few != sample(found, 40, 2)
    assert {m.kind for m in few} == {m.kind for m in found}


def test_every_mistake_in_the_repository_changes_a_text_that_compiles() -> None:
    name = "formats/records/compare.py"
    text = (ROOT / name).read_text(encoding="utf-8")
    found = mutants(name, text)
    assert len(found) > 50
    assert all(one.applied(text) != text for one in found)


# --- which tests guard which module -----------------------------------------------------------------------------------


def test_every_row_fits_a_module_and_names_tests_that_are_there() -> None:
    files = [
        p.relative_to(ROOT).as_posix()
        for package in (*PACKAGES, "infra", "replicator")
        for p in (ROOT / package).rglob("*.py")
    ]
    for pattern, guards in TABLE:
        assert any(fnmatchcase(file, pattern) for file in files), pattern
        for stage in (*guards.stages, *guards.broker):
            assert [path for path in stage if not (ROOT / path).exists()] == []


def test_every_module_that_works_on_records_is_guarded() -> None:
    known = set(modules())
    others = {p.relative_to(ROOT).as_posix() for package in PACKAGES for p in (ROOT / package).rglob("*.py")} - known
    assert all(name.endswith(("__init__.py", "partition_log.py", "settings.py", "errors.py")) for name in others), (
        others
    )
    assert guards_of("replicator/main.py") is None
    assert list(nearest("ingress/sequencer.py")) == [("tests/stateful/test_sequencer.py",)]
    for flow in ("egress", "ingress"):
        machine = f"tests/stateful/test_{flow}_assigned_partition.py"
        assert list(nearest(f"{flow}/assigned_partition.py")) == [(machine,)]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (0, Verdict.PASSED),
        (1, Verdict.FAILED),
        (2, Verdict.FAILED),
        (3, Verdict.BROKEN),
        (5, Verdict.NO_TESTS),
        (None, Verdict.TIMED_OUT),
        (-24, Verdict.TIMED_OUT),
        (-11, Verdict.FAILED),
    ],
)
def test_what_an_exit_code_says(code: int | None, verdict: Verdict) -> None:
    """pytest's own, and a signal's: a crash of the interpreter is a failure, too many seconds are a time-out."""
    assert _verdict({"code": code}) is verdict
