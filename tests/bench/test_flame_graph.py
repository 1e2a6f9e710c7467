"""Flame graphs: stacks become boxes, as wide as their samples."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.flame_graph import WIDTH, Box, boxes, stacks_of, svg
from bench.flames import COLOURS

RAW = """\
run (main.py:3);poll (loop.py:17);ZSTD_compress (libarrow.so.2600) 30
run (main.py:4);poll (loop.py:18);rd_kafka_poll (librdkafka-1.so) 10
run (main.py:3);<&> (loop.py:18) 60
"""
SVG = "{http://www.w3.org/2000/svg}"


def drawn(root: Box, per_sample: float) -> dict[str, float]:
    """Width by title."""
    tree = ElementTree.fromstring(svg(root, title="t", per_sample=per_sample, unit=0.1, colours=COLOURS))
    return {
        str(group.findtext(f"{SVG}title")): float(group.findall(f"{SVG}rect")[0].attrib["width"])
        for group in tree.iter(f"{SVG}g")
    }


def test_lines_of_a_function_are_one_box_and_callers_have_what_they_called() -> None:
    root = boxes(stacks_of(RAW))
    assert drawn(root, 12) == {
        "all: 10.00 CPU-s, 100.0%": 1200,
        "run (main.py): 10.00 CPU-s, 100.0%": 1200,
        "<&> (loop.py): 6.00 CPU-s, 60.0%": 720,
        "poll (loop.py): 4.00 CPU-s, 40.0%": 480,
        "ZSTD_compress (libarrow.so.2600): 3.00 CPU-s, 30.0%": 360,
        "rd_kafka_poll (librdkafka-1.so): 1.00 CPU-s, 10.0%": 120,
    }


def test_garbage_that_python_collects_counts() -> None:
    assert len(stacks_of("run (a.py:1);gc_collect_main (libpython3.11.so.1.0) 4\n")) == 1


def test_functions_without_a_name_are_one_box() -> None:
    assert stacks_of("0x7f01 (libc.so.6) 2\n0x7f02 (libc.so.6) 3\n") == {("? (libc.so.6)",): 5}


@pytest.mark.parametrize(
    "left_out",
    [
        "run (a.py:1);_find_and_load (<frozen importlib._bootstrap>:1178);exec (b.py:2)",
        "? (libc.so.6);gc_collect_main (libpython3.11.so.1.0)",
        "get (queue.py:180);PyThread_acquire_lock_timed (libpython3.11.so.1.0);? (libc.so.6)",
        "run (a.py:1);PyEval_RestoreThread (libpython3.11.so.1.0);take_gil (libpython3.11.so.1.0)",
        "run (a.py:1);rd_kafka_q_pop (librdkafka.so);pthread_cond_timedwait (libc.so.6)",
        "readinto (socket.py:9);poll (libc.so.6)",
    ],
)
def test_threads_that_wait_imports_and_the_end_are_left_out(left_out: str) -> None:
    assert stacks_of(f"{left_out} 100\nrun (a.py:1);poll (loop.py:2) 1\n") == {("run (a.py)", "poll (loop.py)"): 1}


def test_what_is_too_narrow_is_left_out() -> None:
    assert [title.partition(":")[0] for title in drawn(boxes(stacks_of(RAW)), 0.05)] == [
        "all",
        "run (main.py)",
        "<&> (loop.py)",
        "poll (loop.py)",
        "ZSTD_compress (libarrow.so.2600)",
    ]


def test_a_line_of_another_form() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        stacks_of("Error: failed to read memory")


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("poll (infra/kafka/consumer.py)", "Python"),
        ("decode (consume.linux-x86_64.so)", "our compiled code"),
        ("memcpy (libc.so.6)", "libc: copying and memory"),
        ("crc (libcrypto.so.3)", "checksums and TLS"),
    ],
)
def test_groups(name: str, group: str) -> None:
    assert next(one for pattern, (one, _) in COLOURS.items() if re.search(pattern, name)) == group


NAMES = st.text("abc;&<>\"' ", min_size=1, max_size=3).map(lambda text: text.replace(";", "_").replace(" ", "-"))


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map(tuple), st.integers(1, 50), min_size=1, max_size=12))
def test_boxes_hold_all_samples_and_nothing_lies_beside_its_caller(stacks: dict[tuple[str, ...], int]) -> None:
    raw = "".join(f"{';'.join(stack)} {count}\n" for stack, count in stacks.items())
    assert stacks_of(raw) == Counter(stacks)
    root = boxes(stacks)
    assert root.samples == sum(stacks.values())
    text = svg(root, title="<t>", per_sample=WIDTH / root.samples, unit=1, colours=COLOURS)
    rects = [
        (float(one.attrib["y"]), float(one.attrib["x"]), float(one.attrib["width"]))
        for group in ElementTree.fromstring(text).iter(f"{SVG}g")
        for one in group.findall(f"{SVG}rect")
    ]
    rows = {y: sorted((x, width) for at, x, width in rects if at == y) for y, _, _ in rects}
    for row in rows.values():
        assert all(x + width <= after + 0.2 for (x, width), (after, _) in pairwise(row))
        assert sum(width for _, width in row) <= WIDTH + 0.1 * len(row)
