"""One home for one helper: no two modules of tests and benchmarks define functions with the same body."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tests", "bench")
FEWEST = 4
"""Statements, nested ones included and a docstring not, of a body that has one home; a shorter one may be written
again."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def statements(function: Function) -> int:
    """Those of the body and within it."""
    body = without_docstring(function.body)
    return sum(isinstance(one, ast.stmt) for each in body for one in ast.walk(each))


def without_docstring(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def own_names(function: Function) -> set[str]:
    """Parameters, and what the body binds."""
    found = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for one in ast.walk(function):
        match one:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if one is not function:
                found.add(name)
            case ast.Lambda(args=args):
                found |= {each.arg for each in ast.walk(args) if isinstance(each, ast.arg)}
    return found


def normalised(function: Function) -> str:
    """The body, without annotations and docstring; the function's own names are numbered in the order of their use."""
    own, numbers = own_names(function), dict[str, str]()

    def text(value: object) -> str:
        match value:
            case ast.arg(arg=name):
                return text(ast.Name(id=name))
            case ast.AnnAssign(target=target, value=assigned):
                return f"Assign([{text(target)}],{text(assigned)})"
            case ast.AST():
                return f"{type(value).__name__}({','.join(map(text, fields(value)))})"
            case list():
                return f"[{','.join(map(text, value))}]"
            case str() if value in own:
                return numbers.setdefault(value, f"${len(numbers)}")
            case _:
                return repr(value)

    return text(list(without_docstring(function.body)))


def fields(node: ast.AST) -> Iterator[object]:
    """Without types, and without whether a name is read or written."""
    for name in node._fields:
        value = getattr(node, name, None)
        if name in ("ctx", "annotation", "returns", "type_comment", "type_params", "kind", "simple"):
            continue
        if name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            value = list(without_docstring(node.body))
        yield value


def written_again(root: Path, fewest: int = FEWEST) -> Mapping[str, Sequence[str]]:
    """Functions and methods of several modules that have one body: the first of each, and the others. Tests are left
    out."""
    found: dict[str, dict[str, str]] = defaultdict(dict)  # body: module: where
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        module = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, Function) or node.name.startswith("test_"):
                continue
            if statements(node) >= fewest:
                found[normalised(node)].setdefault(module, f"{module}: {node.name}")
    several = [[*places.values()] for places in found.values() if len(places) > 1]
    return {first: rest for first, *rest in several}


def test_no_helper_is_written_again() -> None:
    """Of several, one moves into a module that the others import, in the folder that they share."""
    assert written_again(ROOT) == {}


ONE = '''
def filled(store: Store, *names: str) -> Store:
    """As it is."""
    for name in names:
        store.put(name)
        store.flush()
    return store
'''
SAME = """
class Archive:
    def with_all(bucket, *keys):
        for key in keys:
            bucket.put(key)
            bucket.flush()
        return bucket
"""
OTHER = ONE.replace("flush", "sync")
SHORT = "def closed(store):\n    store.flush()\n    store.close()\n    return store\n"


def test_a_body_that_is_written_again_is_found(tmp_path: Path) -> None:
    for name, text in {
        "tests/egress/test_one.py": ONE + SHORT,
        "tests/ingress/test_two.py": OTHER + SHORT,
        "bench/three.py": SAME,
        "bench/four.py": ONE.replace("store.put(name)", "name.put(store)"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert written_again(tmp_path) == {"bench/three.py: with_all": ["tests/egress/test_one.py: filled"]}
    assert written_again(tmp_path, fewest=3).keys() == {"bench/three.py: with_all", "tests/egress/test_one.py: closed"}
