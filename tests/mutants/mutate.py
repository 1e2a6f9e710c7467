"""Small mistakes, one at a time: what a tired hand could write, and what a test should see.

    source ──ast──> candidates ──> Mutant: a place, what stands there, what stands there instead

A mutant is named by its module, function, kind and words, so it keeps its name when code moves around it. Left alone is
what no behaviour depends on, or no test should: annotations, decorators, logging, texts, asserts, large numbers.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

COMPARES: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
    ast.LShift: ">>",
}
OTHERS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SILENT = frozenset({"log", "logging", "warnings"})  # whose calls are for people
LARGEST_NUMBER = 2  # larger ones are tuned, not decided
SWAPPABLE = (ast.Name, ast.Attribute)
UNORDERED = frozenset({"isinstance", "getattr", "setattr", "hasattr", "print", "zip", "cast"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`start` and `end` are positions in the text of the module."""

    id: str
    module: str  # path below the root
    function: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        assert text[self.start : self.end] == self.before, f"{self.module} is not as it was"
        return text[: self.start] + self.after + text[self.end :]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function} [{self.kind}] {_short(self.before)} -> {_short(self.after)}"


def _short(text: str) -> str:
    return " ".join(text.split())[:60] or "(nothing)"


@dataclass(frozen=True, slots=True)
class _Change:
    kind: str
    start: int
    end: int
    after: str


def mutants(module: str, text: str) -> list[Mutant]:
    """In the order of the text; each of them compiles."""
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    seen: Counter[str] = Counter()
    found = []
    for function, line, change in sorted(finder.found, key=lambda one: (one[2].start, one[2].end, one[2].kind)):
        before = text[change.start : change.end]
        if before == change.after:
            continue  # two equal arguments, swapped
        words = "\n".join((module, function, change.kind, before, change.after))
        seen[words] += 1
        name = hashlib.sha256(f"{words}\n{seen[words]}".encode()).hexdigest()[:8]
        one = Mutant(
            id=name,
            module=module,
            function=function,
            line=line,
            kind=change.kind,
            start=change.start,
            end=change.end,
            before=before,
            after=change.after,
        )
        if _compiles(one.applied(text)):
            found.append(one)
    return found


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def sample(candidates: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """By lot, kind after kind, so that what is rare is tried too. A mutant's lot depends on itself alone: a change of
    one module changes nothing in what is drawn of another."""
    by_kind: dict[str, list[Mutant]] = {}
    for one in sorted(candidates, key=lambda one: _lot(seed, one)):
        by_kind.setdefault(one.kind, []).append(one)
    ranked = [(rank, _lot(seed, one), one) for drawn in by_kind.values() for rank, one in enumerate(drawn)]
    return [one for _, _, one in sorted(ranked, key=lambda each: each[:2])[:count]]


def _lot(seed: int, one: Mutant) -> str:
    return hashlib.sha256(f"{seed}:{one.id}".encode()).hexdigest()


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self.found: list[tuple[str, int, _Change]] = []
        self._text = text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = text.splitlines(keepends=True)
        self._names: list[str] = []
        self._returns: list[ast.expr | None] = []

    # --- what is left alone

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._names.append(node.name)
        self._returns.append(node.returns)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        if isinstance(node.returns, ast.Constant) and node.returns.value is None and len(body) > 1:
            self._add("early return", body[0], "return", whole=False)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in body:
            self.visit(statement)
        self._returns.pop()
        self._names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        for statement in body:
            self.visit(statement)
        self._names.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        """States what we believe; no behaviour."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text for people."""

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            if case.guard is not None:
                self._condition(case.guard)
                self.visit(case.guard)
            for statement in case.body:
                self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not self._names:
            return  # a module's own constants, aliases and tables
        if not isinstance(node.targets[0], ast.Name | ast.Tuple):
            self._add("statement removed", node, "pass")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            return
        self._condition(node.test)
        self.generic_visit(node)

    # --- statements

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("statement removed", node, "pass")
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if _is_for_people(node.value):
                return
            if not ast.unparse(node.value.func).endswith("__init__"):
                self._add("statement removed", node, "pass")
        elif isinstance(node.value, ast.Constant):
            return
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What it says is for people."""
        self._add("raise removed", node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add("statement removed", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("statement removed", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add("statement removed", node, "pass")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if not (len(node.body) == 1 and isinstance(node.body[0], ast.Raise)):
            self._add("handler removed", node.body[0], "raise", whole=False)
        for statement in node.body:
            self.visit(statement)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add("statement removed", node, "pass")
            return
        returns = self._returns[-1] if self._returns else None
        kind = "" if returns is None else ast.unparse(returns)
        source = self._source(node.value)
        if kind == "bool" and not isinstance(node.value, ast.Constant):
            self._add("other answer", node.value, f"not ({source})")
        elif kind == "int" and not isinstance(node.value, ast.Constant):
            self._add("other answer", node.value, f"({source}) + 1")
        elif kind.startswith(("list[", "Sequence[")) and source not in ("[]", "()"):
            self._add("other answer", node.value, "[]")
        elif kind.startswith(("dict[", "Mapping[")) and source != "{}":
            self._add("other answer", node.value, "{}")
        elif kind.endswith("| None") and source != "None":
            self._add("other answer", node.value, "None")
        self.visit(node.value)

    # --- expressions

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._add("condition", node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for test in node.ifs:
            self._add("condition", test, "True")
            self.visit(test)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for index, operator in enumerate(node.ops):
            left, right = sides[index], sides[index + 1]
            between = (
                self._position(left.end_lineno, left.end_col_offset),
                self._position(right.lineno, right.col_offset),
            )
            old = _OPERATORS[type(operator)]
            self._replace_in("comparison", node, between, old, COMPARES[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        new = ARITHMETIC.get(type(node.op))
        if new is not None and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            between = (
                self._position(node.left.end_lineno, node.left.end_col_offset),
                self._position(node.right.lineno, node.right.col_offset),
            )
            self._replace_in("arithmetic", node, between, _BINARY[type(node.op)], new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            between = (
                self._position(left.end_lineno, left.end_col_offset),
                self._position(right.lineno, right.col_offset),
            )
            self._replace_in("and, or", node, between, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("negation", node, f"({self._source(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int) and 0 <= node.value <= LARGEST_NUMBER:
            self._add("constant", node, str(node.value + 1))
            if node.value:
                self._add("constant", node, str(node.value - 1))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        ends = {"0": "-1", "-1": "0"}
        index = ast.unparse(node.slice)
        if index in ends:
            self._add("other end", node.slice, ends[index])
            self.visit(node.value)
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_for_people(node):
            return
        name = ast.unparse(node.func)
        if name in OTHERS:
            self._add("min, any", node.func, OTHERS[name])
        if name.rpartition(".")[2] == "timedelta":
            return  # tuned
        if (
            len(node.args) >= 2
            and name.rpartition(".")[2] not in UNORDERED
            and all(isinstance(one, SWAPPABLE) for one in node.args[:2])
        ):
            first, second = node.args[:2]
            start = self._position(first.lineno, first.col_offset)
            end = self._position(second.end_lineno, second.end_col_offset)
            self._note("arguments", node, start, end, f"{self._source(second)}, {self._source(first)}")
        self.generic_visit(node)

    # --- how

    def _condition(self, test: ast.expr) -> None:
        """A guard that is gone, and one that holds always."""
        for constant in ("False", "True"):
            self._add("condition", test, constant)

    def _add(self, kind: str, node: ast.stmt | ast.expr, after: str, *, whole: bool = True) -> None:
        """`whole`: instead of the node; else in front of that statement."""
        start = self._position(node.lineno, node.col_offset)
        end = self._position(node.end_lineno, node.end_col_offset) if whole else start
        if whole:
            self._note(kind, node, start, end, after)
        else:
            self._note(kind, node, start, end, f"{after}\n{' ' * node.col_offset}")

    def _replace_in(self, kind: str, node: ast.AST, between: tuple[int, int], old: str, new: str) -> None:
        at = self._text.find(old, *between)
        if at >= 0:
            self._note(kind, node, at, at + len(old), new)

    def _note(self, kind: str, node: ast.AST, start: int, end: int, after: str) -> None:
        function = ".".join(self._names) or "(module)"
        self.found.append((function, getattr(node, "lineno", 0), _Change(kind, start, end, after)))

    def _source(self, node: ast.expr) -> str:
        return self._text[
            self._position(node.lineno, node.col_offset) : self._position(node.end_lineno, node.end_col_offset)
        ]

    def _position(self, line: int | None, column_bytes: int | None) -> int:
        assert line is not None
        assert column_bytes is not None
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column_bytes].decode())


def _is_for_people(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name.partition(".")[0] in SILENT or name in ("assert_never", "super")


_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.LShift: "<<",
}
