# Everything from nothing but Python 3.11+ and make. The environment is built once and again when pyproject.toml
# changes; remove it with `make clean`.
#   make demo DEMO_ARGS="--report run.json"
#   make test PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# The CPU build by name (`+cpu`) if pip finds one where it looks (add an index with PIP_EXTRA_INDEX_URL), so that it
# does not bring gigabytes of CUDA; else the plain one, which on macOS is the CPU build.
# For NVIDIA GPUs: make test TORCH="torch==2.13.0"
TORCH_VERSION := 2.13.0
TORCH ?=

# Processes that share the tests, of which two in seven seconds go by in waits for timers; 0 is pytest alone, for a
# debugger. See tests/conftest.py.
TEST_WORKERS ?= 3

# Some hundreds of processes are started by the tests: each would compile all of the source for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint unit mutations campaign goals setup clean

demo: $(STAMP)
	$(BIN)/python -m ictp2p demo $(DEMO_ARGS)

test: lint unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(TEST_ARGS)

# Breaks every safety rule in a copy of the source; see tests/mutations. make mutations MUTATIONS="no-fsync pin-ignored"
mutations: $(STAMP)
	$(BIN)/python -m tests.mutations.runner $(MUTATIONS)

# Simulated worlds and faults at random, for hours if you like; what was found so far is in docs/simulator.md.
#   make campaign SEEDS="1000 2000" WORLDS=500 CLUSTERS=40
SEEDS ?= 0 300
WORLDS ?= 100
CLUSTERS ?= 24

campaign: $(STAMP)
	$(BIN)/python -m sim.campaign $(SEEDS)
	$(BIN)/python -m sim.campaign $(SEEDS) --clusters $(CLUSTERS)
	WORLDS=$(WORLDS) $(BIN)/python -m pytest tests/sim/test_world_machine.py
	CALLS=$(WORLDS) $(BIN)/python -m pytest tests/sim/test_calls_at_random.py tests/sim/test_all_calls_at_random.py \
		tests/sim/test_messages_at_random.py
	POLICIES=$(WORLDS) $(BIN)/python -m pytest tests/sim/test_policies_at_random.py
	CUTS=$(WORLDS) $(BIN)/python -m pytest tests/cuts
	EXHAUSTIVE=1 $(BIN)/python -m pytest tests/properties

# What docs/performance.md promises, measured on this machine (root, Linux, half an hour with nothing beside it).
#   make goals GOALS="allreduce latency"
goals: $(STAMP)
	$(BIN)/python benchmarks/goals.py --folder runs/goals $(if $(GOALS),--only $(GOALS))

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("ictp2p needs Python 3.11 or newer; $(PYTHON) is %d.%d" % v[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
ifeq ($(TORCH),)
	$(PIP) "torch==$(TORCH_VERSION)+cpu" 2>/dev/null \
	|| $(PIP) "torch==$(TORCH_VERSION)"
else
	$(PIP) "$(TORCH)"
endif
	$(PIP) --editable ".[demo]" --group dev
	touch $@

clean:
	rm -rf $(VENV)
