# Every target does its own set-up; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
# All optional libraries are in an environment of their own: make test never sees them.
ALL := .venv-all
TORCH ?= torch==2.13.0
SEED ?= 0
MINUTES ?= 60
SHARE ?= 1
# Print the output of a check when the check has ended, if this make can.
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# Neighbouring tests run in the same process, so that their fixtures are made once.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal
# Each test process gets one thread: threads of BLAS and OpenMP would wait for each other.
test unit older lowest: export OMP_NUM_THREADS := 1
test unit older lowest: export OPENBLAS_NUM_THREADS := 1
test unit: export COUNTERSAMPLE_TEST_SEED := $(SEED)

.DEFAULT_GOAL := help
.SECONDARY:  # keep the stamps of environments
.PHONY: help demo test test-all lint types unit programs older lowest oldest endure fuzz mutate bench docs clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.package  ## fit the log of a small shop, and compare the methods of the paper
	@$(VENV)/bin/countersample demo

test: $(VENV)/.test  ## run the tests in about five minutes; needs only Python (SEED=7 for other random numbers)
	$(VENV)/bin/python -m pytest -m "not slow" $(PARALLEL)

test-all: $(ALL)/.dev programs  ## run everything: slow tests, PyTorch, Spark, browser, fuzzers, some faults, old versions, lint, types
	@$(MAKE) --no-print-directory --jobs 2 $(TOGETHER) lint types fuzz older oldest
	@$(MAKE) --no-print-directory mutate SHARE=4
	@$(MAKE) --no-print-directory unit

lint: $(ALL)/.dev  ## check style, formatting and the layers of the architecture
	$(ALL)/bin/ruff check .
	$(ALL)/bin/ruff format --check .
	$(ALL)/bin/lint-imports

types: $(ALL)/.dev  ## check types
	$(ALL)/bin/mypy

unit: $(ALL)/.dev  ## run all tests, with every optional library
	NODE_PATH=$(CURDIR)/$(ALL)/node/node_modules $(ALL)/bin/python -m pytest $(PARALLEL)

programs: $(ALL)/.dev  ## install the programs that some tests need, or name what is missing
	@sh tests/install_programs.sh $(ALL)/node

older: $(ALL)/.dev  ## run the documentation and tests of numbers again, as an older CPU
	$(ALL)/bin/python tests/as_older_cpu.py --quiet

lowest: $(VENV)-lowest/.test  ## run the tests with the oldest supported versions of all dependencies
	$(VENV)-lowest/bin/python -m pytest $(PARALLEL) --override-ini filterwarnings=  # old ones warn

oldest: $(VENV)-oldest/.package  ## import every module and run every command with those versions
	@[ ! -e $(VENV)-oldest/.unavailable ] || echo "oldest: skipped, the oldest versions have no wheels for this Python"
	[ -e $(VENV)-oldest/.unavailable ] || $(VENV)-oldest/bin/python -m pytest --quiet \
	  --override-ini filterwarnings= tests/test_package.py \
	  tests/test_first_use.py::test_each_kernel_is_compiled_for_one_type_of_each_argument

endure: $(ALL)/.dev  ## train, kill, resume, convert, fit in random order for an hour (MINUTES=5)
	$(ALL)/bin/python tests/endure.py --minutes $(MINUTES) --seed $(SEED)

fuzz: $(ALL)/.dev  ## fuzz every reader of files for half a minute
	$(ALL)/bin/python tests/fuzz_letor.py 10
	$(ALL)/bin/python tests/fuzz_folders.py 8
	$(ALL)/bin/python tests/fuzz_files.py 8
	$(ALL)/bin/python tests/fuzz_logs.py 5

mutate: $(ALL)/.dev  ## put faults into a copy of the source, and check that tests catch each (SHARE=4: every fourth)
	$(ALL)/bin/python tests/mutate.py --share $(SHARE)

bench: $(VENV)/.bench  ## run all benchmarks, compare with the last run (BENCH=bench_alias: only that)
	$(VENV)/bin/python benchmarks/run.py $(BENCH)

docs: $(VENV)/.docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html"

clean:  ## remove everything that was built or installed
	rm -rf $(VENV) $(ALL) $(VENV)-lowest $(VENV)-oldest build dist site demo .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is a folder with the stamps of what was installed: .package, then a group each.
%/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "countersample needs Python 3.11 or later; name one with make PYTHON=…"; exit 1; }
	@echo "Setting up $* (once; a minute or two)"
	@$(PYTHON) -m venv $*
	@$*/bin/python -m pip --disable-pip-version-check --quiet install --upgrade pip
	@touch $@

%/.package: %/.venv pyproject.toml src/countersample/_version.py
	@$*/bin/python -m pip --disable-pip-version-check --quiet install --editable .
	@touch $@

$(VENV)/.test $(VENV)/.bench $(VENV)/.docs: $(VENV)/.package
	@$(VENV)/bin/python -m pip --disable-pip-version-check --quiet install --group $(@F:.%=%)
	@touch $@

$(ALL)/.dev: $(ALL)/.package
	@$(ALL)/bin/python -m pip --disable-pip-version-check --quiet install --group dev
	@$(ALL)/bin/python -m pip --disable-pip-version-check --quiet install "$(TORCH)" || \
	  echo "make: PyTorch could not be installed (make TORCH=… names another build); its tests are skipped"
	@touch $@

$(VENV)-lowest/.test: pyproject.toml
	@$(call lowest,$(VENV)-lowest,--group test)
	@touch $@

# The oldest versions have wheels for the oldest supported Python only.
$(VENV)-oldest/.package: pyproject.toml
	@mkdir -p $(@D)
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; \
	  then $(call lowest,$(VENV)-oldest,"pytest>=8.2" "hypothesis>=6.100"); \
	  else touch $(@D)/.unavailable; fi
	@touch $@

# Install the oldest versions that are allowed (over newer ones they would not be): $(call lowest,where,what else)
define lowest
$(PYTHON) -m venv --clear $(1) && \
$(1)/bin/python -m pip --disable-pip-version-check --quiet install uv && \
$(1)/bin/uv pip install --quiet --python $(1) --resolution lowest-direct --editable . $(2)
endef
