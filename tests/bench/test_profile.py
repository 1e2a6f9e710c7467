"""Samples of `perf` are counted by the library that they fell into."""

from __future__ import annotations

from collections import Counter

from bench.profile import LIBRARIES, THREADS, table

REPORT = """\
# To display the perf.data header info, please use --header/--header-only options.
#
# Samples: 1K of event 'cpu-clock:ppp'
#
# Overhead       Samples  Shared Object
# ........  ............  ....................................
#
    50.00%           500  libarrow.so.2600
    20.00%           200  libpython3.11.so.1.0
    10.00%           100  librdkafka-5f1b.so.1
     8.00%            80  [kernel.kallsyms]
     6.00%            60  consume.linux-x86_64.so
     3.00%            30  libc.so.6
     2.00%            20  lib.cpython-311-x86_64-linux-gnu.so
     1.00%            10  libodd.so
"""


def test_samples_by_library() -> None:
    assert LIBRARIES.samples(REPORT) == {
        "Arrow, Parquet and the codec": 520,
        "Python": 200,
        "Kafka's client": 100,
        "kernel: sockets, memory, files": 80,
        "our compiled code": 60,
        "libc: copying and memory": 30,
        "other: libodd.so": 10,
    }


def test_samples_by_thread() -> None:
    report = "    60.00%      60  python3\n    30.00%      30  rdk:broker1\n    10.00%      10  rdk:main\n"
    assert THREADS.samples(report) == {
        "Kafka's client: connections to brokers": 30,
        "Kafka's client: its other threads": 10,
        "Python's and Arrow's threads": 60,
    }


def test_the_largest_share_comes_first() -> None:
    found = {"egress": Counter({"Python": 1.0, "Kafka's client": 3.0}), "ingress": Counter({"Python": 1.0})}
    assert table(found)[2:] == [
        "| Kafka's client | 3.00 (75%) | 0.00 (0%) |",
        "| Python | 1.00 (25%) | 1.00 (100%) |",
        "| all | 4.00 | 1.00 |",
    ]
