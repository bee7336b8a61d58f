PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-gpu test-newcomer test-lowest soak lock docs lint format types dist bench bench-scale bench-families bench-gpu peers-gpu bench-cluster compare references reproduce clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(READY)  ## make the virtual environment

# The versions that the tests were last run with; make setup LOCK= takes the newest ones allowed.
LOCK ?= -c requirements-dev.lock

$(READY): pyproject.toml | requirements-dev.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sojourn needs Python 3.11 or later; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(LOCK) -e '.[dev]'
	touch $(READY)

lock: $(READY)  ## write the versions of this environment to requirements-dev.lock
	$(BIN)/python -m tools.lock > requirements-dev.lock.part
	mv requirements-dev.lock.part requirements-dev.lock

demo: $(READY)  ## learn word classes from the Python documentation
	$(BIN)/sojourn demo

# Whole files go to one process: what a module's tests share is made once.
JOBS ?= 2
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder

test: $(READY)  ## run all tests, in two processes: make test JOBS=0 for one
	$(BIN)/python $(PYTEST) -n $(JOBS) -m 'not long'

.PHONY: test-fast
test-fast: $(READY)  ## run all tests but those that take more than five seconds
	$(BIN)/python $(PYTEST) -n $(JOBS) -m 'not slow and not long'

.PHONY: test-long
test-long: $(READY)  ## run the tests that take too long for every day: faults of a cluster, recovery of costly families
	$(BIN)/python $(PYTEST) -n $(JOBS) -m long

GPU_BIN := .venv-gpu/bin
TORCH ?= torch
GPU_JOBS ?= 0

.venv-gpu/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-gpu
	$(GPU_BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(GPU_BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,gpu]' 'numpy<2.4'  # Triton's interpreter
	touch $@

test-gpu: .venv-gpu/.ready  ## test the GPU's kernels; without a GPU through Triton's interpreter
	$(GPU_BIN)/python $(PYTEST) -n $(GPU_JOBS) tests/kernels/cuda tests/backends/cuda tests/families/test_torch.py

test-newcomer: $(READY)  ## play a newcomer: fresh clone, demo, words and earthquakes, reports in Chromium
	$(BIN)/python -m tests.newcomer

.PHONY: pictures
pictures: $(READY)  ## take the pictures of reports in the documentation, with Chromium
	$(BIN)/python -m tools.pictures

SECONDS ?= 600

soak: $(READY)  ## look for crashes and losses by random inputs, crafted files and kills: make soak SECONDS=3600
	$(BIN)/python -m tests.soak --seconds $(SECONDS)

LOWEST_BIN := .venv-lowest/bin
TESTS ?=

.venv-lowest/.ready: pyproject.toml tools/lowest.py
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) tools/lowest.py > .venv-lowest/constraints.txt
	$(LOWEST_BIN)/python -m pip install --quiet --disable-pip-version-check -c .venv-lowest/constraints.txt -e '.[dev]'
	touch $@

test-lowest: .venv-lowest/.ready  ## test with the oldest dependencies allowed: make test-lowest TESTS=tests/test_kernels.py for fewer
	$(LOWEST_BIN)/python -m pytest -W default::DeprecationWarning $(TESTS)  # old libraries use what newer ones deprecate

docs: $(READY)  ## build the documentation into site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(READY)  ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## apply style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)  ## check types
	$(BIN)/mypy

DIST_BIN := .venv-dist/bin
CLEAN_BIN := .venv-dist/clean/bin

.venv-dist/.ready: Makefile
	$(PYTHON) -m venv --clear .venv-dist
	$(DIST_BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	touch $@

dist: .venv-dist/.ready  ## build sdist and wheel into dist/, and try the wheel in a clean environment
	rm -rf dist
	$(DIST_BIN)/python -m build
	$(DIST_BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv-dist/clean
	$(CLEAN_BIN)/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(CLEAN_BIN)/python -I -c 'from sojourn import *; from importlib.metadata import version as v; import sojourn; assert sojourn.__version__ == v("sojourn")'
	$(CLEAN_BIN)/sojourn --version

bench: $(READY)  ## measure speed, against sgemm and against other libraries
	$(BIN)/python -m benchmarks

bench-scale: $(READY)  ## learn from 100 million tokens on disk: make bench-scale SIZE=100000 for fewer sentences
	$(BIN)/python -m benchmarks.scale $(if $(SIZE),--size $(SIZE))

bench-families: $(READY)  ## measure Gaussian emissions against hmmlearn
	$(BIN)/python -m benchmarks.families
	$(BIN)/python -m benchmarks.readme

bench-gpu: .venv-gpu/.ready  ## measure speed on this machine's GPU
	$(GPU_BIN)/python -m benchmarks.gpu
	$(GPU_BIN)/python -m benchmarks.gpu_tables
	$(GPU_BIN)/python -m benchmarks.readme

PEERS_PYTHON ?= 3.12
TARGET := --quiet --disable-pip-version-check --no-deps --no-compile --target .peers

.peers: benchmarks/gpu-peers-requirements.txt
	$(PYTHON) -m pip install $(TARGET) --python-version $(PEERS_PYTHON) --only-binary :all: \
		--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 -r $<
	$(PYTHON) -m pip install $(TARGET) apricot-select==0.6.1  # pomegranate's; has no wheel

peers-gpu: .venv-gpu/.ready .peers  ## time dynamax and pomegranate on this machine's GPU
	$(GPU_BIN)/python -m benchmarks.gpu_peers
	$(GPU_BIN)/python -m benchmarks.gpu_tables

AGREEMENT_BIN := .venv-agreement/bin

.venv-agreement/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-agreement
	$(AGREEMENT_BIN)/python -m pip install --quiet --disable-pip-version-check -e . hmmlearn dynamax==1.0.3 deeptime==0.4.5 pomegranate==1.1.2
	touch $@

.PHONY: agreement
agreement: .venv-agreement/.ready  ## compare filters, passage times, decoding and labels with dynamax, deeptime, hmmlearn and pomegranate
	$(AGREEMENT_BIN)/python -m benchmarks.agreement

.PHONY: coverage
coverage: $(READY)  ## measure the coverage of intervals, and forecasts on held-out data
	$(BIN)/python -m experiments.coverage
	$(BIN)/python -m experiments.forecasts

.PHONY: bench-live
bench-live: $(READY)  ## time streams, and filter ten million steps from a file
	$(BIN)/python -m benchmarks.live

bench-cluster: $(READY)  ## time steps on a cluster of this machine's own, and predict larger ones
	$(BIN)/python -m benchmarks.cluster

.PHONY: real
real: $(READY)  ## learn from real data with known answers: make real DATA=folder
	$(BIN)/python -m experiments.real $(DATA)

compare: $(READY)  ## SCVI against SVI on a corpus: make compare CORPUS=folder
	$(BIN)/python -m experiments.collapsing $(CORPUS)

references: $(READY)  ## all inference methods compared: make references CORPUS=folder
	$(BIN)/python -m experiments.exact_posterior
	$(BIN)/python -m experiments.references $(CORPUS)

reproduce: $(READY)  ## the paper's figure, and the experiments beyond it: make reproduce CORPUS=folder
	$(BIN)/sojourn reproduce figure2 --corpus $(CORPUS) --name "English Web Treebank" --out experiments/figure2
	$(BIN)/python -m experiments.tags $(CORPUS)
	$(BIN)/python -m experiments.tuning $(CORPUS)
	$(BIN)/python -m experiments.hdp_question $(CORPUS)
	$(BIN)/python -m experiments.reproduction_tables

clean:  ## remove caches and compiled kernels
	find src tests tools benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
