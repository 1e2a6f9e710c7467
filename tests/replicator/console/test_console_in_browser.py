"""The console in Debian's Chromium: on wide and narrow screens, in light and dark, with keys alone, and of 5,000
partitions. axe-core judges every page. Both npm packages are fetched into a temporary folder."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.replicator.console.browser import Browse, browser_in, chromium, served
from tests.replicator.console.console_states import HOSTILE, GivenStates, small_state
from tests.replicator.console.large_console import resident_bytes

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-token-of-some-length"
PAINT_MS, JSON_BYTES, ADDED_BYTES = 2_000, 5_000_000, 100 << 20
PATHS = (
    "/",
    "/topics",
    "/topics/us/orders.created",
    "/topics/us/orders.created/0",
    "/topics/eu/orders.created/1",
    "/groups",
    "/compaction",
    "/proofs",
    "/problems",
)


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """Skips the tests where Chromium or npm is absent."""
    if chromium() is None:
        pytest.skip("Chromium or npm is not installed: Debian's packages are chromium, nodejs and npm")
    return browser_in(tmp_path_factory.mktemp("browser"))


def test_every_page_in_light_and_dark_on_wide_and_narrow_screens(browse: Browse) -> None:
    with served(GivenStates([small_state()], samples=90)) as base:
        found = browse(base, paths=PATHS, schemes=["light", "dark"], widths=[1280, 400])
    assert len(found["visits"]) == len(PATHS) * 4
    for visit in found["visits"]:
        where = f"{visit['path']} {visit['scheme']} {visit['width']}"
        serious = [one for one in visit["violations"] if one["impact"] in ("serious", "critical")]
        assert (visit["status"], visit["errors"], serious) == (200, [], []), where
        assert visit["overflow"] <= 0, f"{where}: wider than its window"
        assert "owned" not in visit["title"], where
        assert all(url.startswith(base) for url in visit["requests"]), where
    grounds = {visit["scheme"]: visit["ground"] for visit in found["visits"]}
    assert grounds["light"] != grounds["dark"]

    stops = found["stops"]
    assert [stop["text"] for stop in stops[:3]] == ["Skip to the content", "Overview", "Topics"]
    assert {"INPUT", "BUTTON", "A", "DIV"} <= {stop["tag"] for stop in stops}  # a DIV: the table that scrolls
    assert all(stop["outline"] for stop in stops), "a focus that is not to be seen"
    assert (found["skipped"], found["searched"]) == ("content", 2)


def test_hostile_names_in_the_browser(browse: Browse) -> None:
    """The page's policy would stop a script that got in: here nothing asked it to."""
    with served(GivenStates([small_state()])) as base:
        found = browse(base, paths=["/groups", "/groups?q=%3Cimg", f"/topics?q={quote(HOSTILE)}"])
    for visit in found["visits"]:
        assert (visit["errors"], visit["title"].partition(" ·")[0] in ("Consumer groups", "Topics")) == ([], True)
        assert [url for url in visit["requests"] if "/assets/" not in url] == [f"{base}{visit['path']}"]


def test_a_browser_signs_in_with_the_token(browse: Browse) -> None:
    with served(GivenStates([small_state()]), TOKEN) as base:
        found = browse(base, paths=["/topics"], credentials={"username": "me", "password": TOKEN})
    (visit,) = found["visits"]
    assert (visit["status"], visit["errors"]) == (200, [])


def get(address: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": "application/json"})) as answer:
        return bytes(answer.read())


def test_five_thousand_partitions(browse: Browse) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.replicator.console.large_console"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:  # which closes its input at the end, and so ends it
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        base = first["address"]
        flows = json.loads(get(f"{base}/"))["flows"]
        assert [flow["partitions"] for flow in flows] == [2500, 2500]
        paths = [
            *("/", "/topics", "/topics?page=3", "/problems", "/proofs", "/groups"),
            *("/topics/eu/mine-0007", "/topics/us/theirs-0007/3"),
        ]
        sizes = {path: len(get(base + path)) for path in paths}
        assert max(sizes.values()) < JSON_BYTES, sizes
        found = browse(base, paths=paths)
        paints = {visit["path"]: round(visit["paint_ms"]) for visit in found["visits"]}
        assert max(paints.values()) < PAINT_MS, paints
        added = resident_bytes(process.pid, "VmHWM") - first["before"]
        assert added < ADDED_BYTES, f"{added >> 20} MiB"
        print(f"first paint {paints} ms, JSON {sizes} bytes, {added >> 20} MiB added")
