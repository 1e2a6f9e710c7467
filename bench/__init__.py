"""How fast the services are, and how that compares with the bare Kafka client in the same minute on the same machine.

`python -m bench` starts a broker and an S3 server, measures, prints a table and writes `docs/bench.md` and
`docs/bench.json`.
"""
