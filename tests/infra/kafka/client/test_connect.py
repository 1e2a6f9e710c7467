"""Only `connect` creates clients: one that is created elsewhere has no tokens, and refuses the property `auth`."""

from __future__ import annotations

import ast
from pathlib import Path

import infra.kafka

ROOT = Path(infra.kafka.__path__[0])
CLIENTS = {"Consumer", "Producer", "AdminClient"}
ASKS_THE_CLIENT = {"client/property_check.py"}  # about a property; no client is ever created


def test_clients_are_created_in_one_place() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLIENTS
    }
    assert found == ASKS_THE_CLIENT
