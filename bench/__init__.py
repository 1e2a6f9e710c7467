"""Benchmarks: measures the program beside programs that do the minimum of the same work, at the same time on the same
machine.

`make bench` starts a broker and an S3 server, measures all rows, and writes `docs/bench.json`; `docs/bench.md` and the
table of `docs/performance.md` are generated from that file. `bench.rows` defines the rows and the targets.
"""
