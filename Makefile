# make setup   .venv with pinned, hashed packages and the editable install; quick when nothing changed
# make demo    the main job on real input, checked at the end (KEEP=1 leaves the node running)
# make test    everything: lint, types, import contracts, unit tests, process tests, and the tests against the built wheel
# make check   the inner loop: all but tests/process (sockets, disks, processes), and few examples of each property
#              (CHANGED=1 for what the branch touches, CHANGED=COMMIT for what has changed since then: seconds)
# make coverage  the lines that no unit test passes, in .build/logs/coverage.log
# make sim     the simulators: twice SEEDS=500 of clusters, and a fifth of each other kind; make sim-mutants: planted bugs must be found
# make chaos   faults by chance over three real nodes for MINUTES=5 (SEED=n for the same ones), with every history checked; as root then
#              over three nodes and three brokers with mirrors between them, for as long and 40 faults over 2,000,000 events at least
# make spark-matrix  the tests of Spark with releases of PySpark beside the pinned one (RELEASE=4.2 for that one alone)
# make damage  every file of a node's data directory damaged in every way, on one node and on one of three (TRIALS="one-kill MANIFEST" for some)
# make bench   the benchmarks, each with its baseline
# make model   check the protocol in docs/spec with TLC (needs Java; CHECK=name runs some of it)
# make format  put the code into its one layout
# make proto   generate the protobuf code from schemas/
# make pin     write requirements/*.txt anew from pyproject.toml (needs uv)
# make clean   remove everything that the above made
.PHONY: help setup demo test check coverage sim sim-mutants chaos spark-matrix damage bench model format proto pin clean
PYTHON_ENV := .venv/bin/python

help:
	@sed -n 's/^# //p' Makefile

setup:
	@.ci/setup dev
	@.ci/proto --check

demo:
	@.ci/setup base
	@.venv/bin/eventlog demo $(if $(filter-out 0 no,$(KEEP)),--keep)

test: setup
	@.ci/setup spark
	@$(PYTHON_ENV) -m tests.lanes process sim spark unit wheel types lint contracts

check: setup
	@$(PYTHON_ENV) $(if $(CHANGED),-m tests.changed $(filter-out 1,$(CHANGED)),-m tests.lanes quick types lint contracts)

coverage: setup
	@.ci/setup spark
	@$(PYTHON_ENV) -m tests.lanes coverage

sim: setup
	@$(PYTHON_ENV) -m tests.sim clusters --known $$(for first in 0 1000000; do echo $$first:$$(($$first + $(or $(SEEDS),500))); done)
	@set -e; for kind in groups work near reading mirroring clients; do \
		$(PYTHON_ENV) -m tests.sim $$kind $$(for first in 0 1000000; do echo $$first:$$(($$first + $(or $(SEEDS),500) / 5)); done); done

sim-mutants: setup
	@$(PYTHON_ENV) -m tests.sim.hunt

chaos: setup
	@$(PYTHON_ENV) -m tests.process.chaos $(or $(MINUTES),5) $(SEED)
	@[ "$$(id -u)" -ne 0 ] || $(PYTHON_ENV) -m tests.kafka.chaos $(or $(MINUTES),5) $(SEED)

spark-matrix:
	@.ci/spark-matrix $(RELEASE)

damage: setup
	@$(PYTHON_ENV) -m tests.process.damage $(TRIALS)

bench: setup
	@.ci/setup spark
	@$(PYTHON_ENV) -m benchmarks

model:
	@.ci/setup base
	@$(PYTHON_ENV) docs/spec/check.py $(CHECK)

format: setup
	@.venv/bin/ruff check --fix-only --quiet
	@.venv/bin/ruff format

proto:
	@.ci/setup dev
	@.ci/proto

pin:
	@.ci/pin

clean:
	rm -rf .venv .build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
