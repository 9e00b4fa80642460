# Each target makes its own environment in .venv when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help env demo test check bench clean

help:
	@echo "make demo    fit the bundled Sachs cells and print the strongest edges"
	@echo "make test    lint, types and all tests"
	@echo "make check   lint, format and types only"
	@echo "make bench   the benchmarks of docs/ (takes long; see python -m benchmarks --help)"

$(READY): pyproject.toml
	@echo "== making an environment in $(VENV) (once; about a minute)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)

env: $(READY)

demo: $(READY)
	@echo "== fitting the bundled Sachs cells: 853 cells, 11 proteins"
	$(BIN)/vcuda fit sachs -o run-sachs --seed 0

# One thread of BLAS for each worker of pytest: more wait for each other, at nearly twice the processor's time.
test: export OPENBLAS_NUM_THREADS = 1
test: export OMP_NUM_THREADS = 1
test: check
	@echo "== tests"
	$(BIN)/python -m pytest -n auto

check: $(READY)
	@echo "== lint, format, types"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks all

clean:
	rm -rf $(VENV) run-sachs
