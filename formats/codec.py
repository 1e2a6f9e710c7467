"""Control objects as JSON with a version."""

from __future__ import annotations

import json
from typing import Any

VERSION = 1


def dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def load(data: bytes) -> dict[str, Any]:
    d: dict[str, Any] = json.loads(data)
    if d["v"] != VERSION:
        raise ValueError(f"version {d['v']}, this program reads {VERSION}")
    return d
