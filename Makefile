# Two commands for a machine that has Python (3.11 or later) and pip: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow chaos stops fuzz bench reproduce bench-peers docs dist clean

demo: $(VENV)/.demo
	$(BIN)/dpsearch demo

# mypy's workers are new: if one breaks down, mypy runs without them.
# Two workers on two cores, of mypy as of pytest: threads of BLAS would only wait for each other.
# Modules are kept as bytecode, so that the processes that tests start need not compile them again.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2 || $(BIN)/mypy
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope

# Kernels with their indices checked, every sampler with every family and prior, bugs planted in the
# samplers, workers of a Dask cluster that die: tests that take too long for every change.
slow: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope -m slow tests

# Attacks on files and processes, CHAOS of each; 300 by hand.
CHAOS ?= 300
chaos: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies attacks kills refusals rivals interrupts memory \
		clocks cluster --count $(CHAOS)

# Ctrl-C and SIGTERM at any moment of a fit, on tables of eight kinds, two of them large: minutes
# before the first.
stops: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies attacks stops --count $(CHAOS)

# Hostile model files, tables, command lines and problems: FUZZ of each, or MINUTES of processor time
# each in rounds of FUZZ, divided among PROCESSES.  By hand: make fuzz MINUTES=60 PROCESSES=16.
FUZZ ?= 1000
MINUTES ?=
PROCESSES ?= 2
fuzz: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies attacks fuzz_model_file fuzz_csv fuzz_command_line \
		fuzz_problem --count $(FUZZ) --processes $(PROCESSES) $(if $(MINUTES),--minutes $(MINUTES))

# Data for the three below: a folder, DATA=FOLDER, or what is embedded in the package.
DATA ?= $(DPSEARCH_DATA)
export DPSEARCH_DATA := $(DATA)

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks.engine --out docs/benchmarks/engine.md
	$(BIN)/python -m benchmarks.refinement --out docs/benchmarks/refinement.md
	$(BIN)/python -m benchmarks.directions --out docs/benchmarks/directions.md
	$(BIN)/python -m benchmarks.exact --out docs/benchmarks/exact.md
	$(BIN)/python -m benchmarks.reading --out docs/benchmarks/reading.md
	$(BIN)/python -m benchmarks.samplers --out docs/benchmarks
	$(BIN)/python -m benchmarks.scale --out docs/benchmarks/scale.md
	$(BIN)/python -m benchmarks.cluster --out docs/benchmarks/cluster.md
	$(BIN)/python -m benchmarks.cores --out docs/benchmarks/cores.md

# The paper's experiments, and dpsearch against other tools: their pages in docs.
reproduce: $(VENV)/.test
	$(BIN)/python -m studies reproduce all --out docs/reproduction

bench-peers: $(VENV)/.test
	$(BIN)/python -m studies peers --out docs/benchmarks

# The site, warnings being errors, in docs/_build; it runs the gallery.
docs: $(VENV)/.docs
	OPENBLAS_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky \
		-b html docs docs/_build
	@echo "docs/_build/index.html"

# Archives in dist, checked; then the wheel alone, in an environment of its own outside the tree,
# goes through the tutorial.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/support/archives.py dist

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[cli,plots]"
	touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	touch $@

$(VENV)/.dist: $(VENV)/.made
	$(BIN)/python -m pip install --quiet build twine
	touch $@

clean:
	rm -rf $(VENV) dist build docs/_build docs/examples docs/sg_execution_times.rst .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
