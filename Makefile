# Every target sets up what it needs; `make demo` and `make test` are all a fresh machine wants.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests start hundreds of Python processes, which are quicker with cached bytecode, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-long test-faults soak mutants lint format docs bench bench-field bench-flames bench-latency bench-profile bench-mm2-behaviour bench-mm2-offsets bench-mm2-speed bench-spark golden native java clean

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}: set PYTHON=python3.x")'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "Python has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo "Setting up Python packages in $(VENV) (a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[local,dev,msk]'
	@touch $@

java: $(STAMP)  # one clear message now, instead of a failure later
	@echo "Checking for Java 17 or newer ..."
	@$(BIN)/python -m infra.runtime.java

demo: java
	@echo "Starting the demo (the first time it fetches Kafka's jars) ..."
	$(BIN)/replicator demo

SHORT := -m "not long and not real_s3"
test: java
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(SHORT)

LONG := -p tests.long_results  # which writes docs/test-long.md
test-long: java
	$(BIN)/python -m pytest $(LONG) tests/processes
	$(BIN)/python -m pytest $(LONG) -m "long or real_s3" --ignore=tests/faults --ignore=tests/processes
	$(BIN)/python -m pytest $(LONG) -m longest --override-ini faulthandler_timeout=3600 tests/faults
	REPLICATOR_TEST_LONG=1 $(BIN)/python -m pytest $(LONG) -m "hypothesis and not long and not integration" --override-ini faulthandler_timeout=7200 tests

test-faults: java  # every crash point, and thirty random schedules
	$(BIN)/python -m pytest $(LONG) -m "not longest" --override-ini faulthandler_timeout=1800 tests/faults

SEEDS ?= 1000-1024
soak: java  # plays these schedules, and says in docs/faults.md what it saw
	$(BIN)/python -m tests.faults.soak $(SEEDS)

SEED ?= 1
COUNT ?= 240
MINUTES ?= 90
mutants: java  # plants so many mistakes, one at a time, and says which of them no test saw (docs/decisions/0023-mutants.md)
	$(BIN)/python -m tests.mutants --seed $(SEED) --count $(COUNT) --minutes $(MINUTES)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mkdocs build --strict

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  # writes what is generated of docs/, and the pages as a site into .site
	$(BIN)/python -m tests.docs.generate
	$(BIN)/mkdocs build --strict

bench: java  # writes docs/bench.json, docs/bench.md and the table of docs/performance.md; "Error 3" when a target is missed, "Error 1" when it failed
	$(BIN)/python -m bench

bench-field: java  # beside an earlier commit, against moto, versitygw and a folder (needs Go and git); writes docs/benchmarks.md; "Error 3" when a ratio became worse
	$(BIN)/python -m bench.field --output docs

bench-latency: java  # from the producer until a record can be read, and what that costs (needs Go); writes the table of docs/latency.md
	$(BIN)/python -m bench.latency

bench-profile: java  # which libraries and threads take the processor time; prints two tables (needs Linux's perf)
	$(BIN)/python -m bench.profile

bench-flames: java  # flame graphs of egress at this commit and at an earlier one, into docs/images (needs py-spy)
	$(BIN)/python -m bench.flames

bench-mm2-speed: java  # copying a topic beside MirrorMaker 2 (needs Go); writes a table of docs/mm2-comparison.md
	$(BIN)/python -m bench.mm2_speed

bench-mm2-behaviour: java  # the same actions beside MirrorMaker 2; writes the table of docs/mm2-comparison.md
	$(BIN)/python -m bench.behaviour

bench-mm2-offsets: java  # what groups read again beside MirrorMaker 2; writes the table of docs/mm2-comparison.md
	$(BIN)/python -m bench.offsets

bench-spark: java  # egress and ingress plain, on local masters and on a standalone cluster; prints a table
	$(BIN)/python -m bench.on_spark

golden: $(STAMP)
	$(BIN)/python tests/golden/make.py

native: $(STAMP)  # compiles infra/kafka/native/*.c, with a compiler that pip installs into .zig
	$(BIN)/python tests/native/make.py

clean:
	rm -rf $(VENV) .zig build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants .site
