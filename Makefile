PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo docs peers api release test test-torch oldest audit nightly test-all mutants named proof check install clean

# Public tables for tests and the demonstration; the folder of this repository's neighbour, if it is there.
ifneq ($(wildcard ../shared/data),)
export DPGRAIN_DATA ?= $(abspath ../shared/data)
endif

# Tests run on every core; each worker computes on one thread.
export OMP_NUM_THREADS ?= 1
# Compiled tests are shared by the workers, and compiled modules by the processes that tests start.
export PYTHONDONTWRITEBYTECODE =

demo: $(VENV)/.runtime
	$(BIN)/dpgrain demo --folder demo

# Programs beside the package; `make audit` runs their tests.
BESIDE = benchmarks experiments shipping

# Tests that need PyTorch.
OF_TORCH = tests/torch tests/fuzz/test_calls_of_torch.py

# Effort 1: of each test a few cases, the same in every run; `make docs` runs the tests of pages, and
# `make test-torch` those of networks.
test: $(VENV)/.dev
	$(BIN)/pytest -n auto $(BESIDE:%=--ignore=tests/%) $(OF_TORCH:%=--ignore=%) --ignore=tests/docs

# The tests of dpgrain.torch and of experiments with it; this version has a CPU build.
NETWORKS = networks images last_layer writers language fine_tuning audited_networks
test-torch: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check 'torch==2.13.0' --editable '.[transformers]'
	$(BIN)/pytest -n auto $(OF_TORCH) $(NETWORKS:%=tests/experiments/test_%.py)
	$(BIN)/pytest -q --doctest-modules src/dpgrain/torch
	$(BIN)/pytest -q tests/docs/test_pages.py -k 'networks or language or training-loops or long-runs' --effort=full

# The same for Hugging Face's models with the oldest versions that the extra takes, beside .venv.
OLDEST = 'transformers[torch]==5.0.*' 'peft==0.18.*' 'datasets==4.0.*'
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check 'torch==2.13.0' $(OLDEST) \
	  'pytest>=8.2' 'pytest-xdist>=3.6' 'hypothesis>=6.100' --editable '.[transformers]'
	.venv-oldest/bin/pytest -n auto tests/torch --ignore=tests/torch/test_docstrings.py -k 'trainer or families or losses or columns'

# Effort 3: slow tests, three times the cases, killed processes, fuzzing, and the programs beside the package.
audit: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal --effort=3 --ignore=tests/docs

# Everything that .ci/run leaves out because it takes too long for each change.
nightly: audit proof named oldest

# The test that each injected bug names kills it.
named: $(VENV)/.dev
	$(BIN)/python -m shipping.mutants --named

# Every case, with new noise in each run, and the browser test (needs chromium).
test-all: $(VENV)/.dev
	$(BIN)/pytest -n auto --effort=full -m ''

# Seeded bugs, one at a time, and the tests that see them: an hour on two cores. Before it is closed, an
# issue that moves code shows that no more survive than before.
mutants: $(VENV)/.dev
	$(BIN)/python -m shipping.mutants

# What stands behind each accounting event, from the mechanism to bugs that its tests see: printed, red
# where a piece is missing, and each bug tried (a few minutes).
proof: $(VENV)/.dev
	$(BIN)/python -m shipping.proof --bugs

# Format, lint, descriptions of shared parameters, prose, types, doctests.
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m shipping.shared_parameters
	$(BIN)/python -m shipping.prose
	$(BIN)/mypy
	$(BIN)/pytest -q -n auto --doctest-modules src

# The site, from pages and docstrings; a warning is an error. Every page shows what its code prints.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build --jobs auto --fresh-env --fail-on-warning --keep-going --quiet docs build/site
	$(BIN)/pytest -q -n0 tests/docs/test_site.py
	$(BIN)/pytest -q -n auto tests/docs --ignore=tests/docs/test_site.py --effort=full
	@echo "The site: build/site/index.html"

# The comparison with other libraries: an environment each in build/peers (some gigabytes), hours of
# work, docs/comparison.md. Tumult wants Java 17.
peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.peers --make --run

# How the public names differ from those of the last tagged version.
api: $(VENV)/.dev
	$(BIN)/python -m shipping.api

# A version that is ready to be tagged: built, checked, and run in clean environments of each PYTHONS
# that is here. Says what to do next; tags and uploads nothing.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
release: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[release]'
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m shipping.build $(PYTHONS:%=--python %)

install: $(VENV)/.docs

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dpgrain needs Python 3.11 or later; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[all]'
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.runtime

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
