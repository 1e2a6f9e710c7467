"""What a server on this machine shows as JSON."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from infra.local.ports import HOST


def json_page(port: int, path: str, *, seconds: float) -> dict[str, Any] | None:
    """None if nothing answers within `seconds`, or not with JSON."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy: it is on this machine
    try:
        with opener.open(f"http://{HOST}:{port}{path}", timeout=seconds) as answer:
            found: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return found
