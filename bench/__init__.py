"""How fast the program is, beside programs that do the least of the same work, in the same minutes on the same machine.

`make bench` starts a broker and an S3 server, measures all rows, and writes `docs/bench.json`; `docs/bench.md` and the
table of `docs/performance.md` are made of that file. `bench.rows` says what is measured, and what the targets are.
"""
