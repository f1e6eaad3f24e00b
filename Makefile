# Every target does its own set-up; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SEED ?= 0
MINUTES ?= 60
# What a check prints is shown when it has ended (where this make can).
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# Neighbours stay together, so that what tests of a file share is made once.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal
# Beside each other tests have one thread each: those of BLAS and OpenMP would wait for each other.
unit older lowest: export OMP_NUM_THREADS := 1
unit older lowest: export OPENBLAS_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit older lowest oldest endure fuzz bench docs clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.package  ## compare the methods of the paper on simulated clicks
	@$(BIN)/countersample demo

test: $(VENV)/.dev  ## run every check: lint, types, tests, documentation, fuzzing
	@$(MAKE) --no-print-directory --jobs 2 $(TOGETHER) lint types fuzz older
	@$(MAKE) --no-print-directory unit

lint: $(VENV)/.dev  ## check style, formatting and the layers of the architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## check types
	$(BIN)/mypy

unit: $(VENV)/.dev  ## run the tests only (SEED=7 for other random numbers)
	COUNTERSAMPLE_TEST_SEED=$(SEED) $(BIN)/python -m pytest $(PARALLEL)

older: $(VENV)/.dev  ## run the documentation and tests of numbers again, as an older CPU
	$(BIN)/python tests/as_older_cpu.py --quiet

lowest: $(VENV)-lowest/.test  ## run the tests with the oldest versions of what is depended on
	$(VENV)-lowest/bin/python -m pytest $(PARALLEL) --override-ini filterwarnings=  # old ones warn

oldest: $(VENV)-oldest/.package  ## import every module, run every command with those versions
	$(VENV)-oldest/bin/python -m pytest --quiet --override-ini filterwarnings= tests/test_package.py \
	  tests/test_first_use.py::test_each_kernel_is_compiled_for_one_type_of_each_argument

endure: $(VENV)/.dev  ## train, kill, resume, convert, fit in random order for an hour (MINUTES=5)
	$(BIN)/python tests/endure.py --minutes $(MINUTES) --seed $(SEED)

fuzz: $(VENV)/.dev  ## fuzz every reader of files for half a minute
	$(BIN)/python tests/fuzz_letor.py 10
	$(BIN)/python tests/fuzz_folders.py 8
	$(BIN)/python tests/fuzz_files.py 8
	$(BIN)/python tests/fuzz_logs.py 5

bench: $(VENV)/.bench  ## run all benchmarks, compare with the last run (BENCH=bench_alias: only that)
	$(BIN)/python benchmarks/run.py $(BENCH)

docs: $(VENV)/.docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html"

clean:  ## remove everything that was built or installed
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-oldest build dist site demo .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "countersample needs Python 3.11 or later; name one with make PYTHON=…"; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade pip
	@touch $@

$(VENV)/.package: $(VENV)/.venv pyproject.toml src/countersample/_version.py
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.package pyproject.toml
	@$(PIP) install --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.package pyproject.toml
	@$(PIP) install --group bench
	@touch $@

$(VENV)/.docs: $(VENV)/.package pyproject.toml
	@$(PIP) install --group docs
	@touch $@

$(VENV)-lowest/.test: pyproject.toml
	@$(call lowest,$(VENV)-lowest,--group test)
	@touch $@

$(VENV)-oldest/.package: pyproject.toml
	@$(call lowest,$(VENV)-oldest,"pytest>=8.2" "hypothesis>=6.100")
	@touch $@

# Install the oldest versions that are allowed (over newer ones they would not be): $(call lowest,where,what else)
define lowest
$(PYTHON) -m venv --clear $(1) && \
$(1)/bin/python -m pip --disable-pip-version-check --quiet install uv && \
$(1)/bin/uv pip install --quiet --python $(1) --resolution lowest-direct --editable . $(2)
endef
