# Each target makes its own environment in .venv when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help env demo quick test test-oldest coverage fuzz lock check bench frontend clean

help:
	@echo "make demo    fit the bundled Sachs cells and print the strongest edges"
	@echo "make quick   lint, types and the tests that are not slow: after every change"
	@echo "make test    lint, types and all tests: before every merge"
	@echo "make test-oldest   a part of the tests with the oldest dependencies that pyproject.toml allows (Python 3.11)"
	@echo "make lock    write the versions of this environment to requirements-lock.txt, after make test has passed"
	@echo "make check   lint, format and types only"
	@echo "make coverage   all tests, and the lines of src that none of them runs"
	@echo "make fuzz    thousands of hostile files (takes an hour; see CONTRIBUTING.md)"
	@echo "make frontend   build the scripts of the app and the report from frontend/ (needs Node 20)"
	@echo "make docs    build the documentation into site/, with warnings as errors"
	@echo "make bench   the benchmarks of docs/ (takes long; see python -m benchmarks --help)"

$(READY): pyproject.toml
	@echo "== making an environment in $(VENV) (once; about a minute)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)

env: $(READY)

demo: $(READY)
	@echo "== fitting the bundled Sachs cells: 853 cells, 11 proteins"
	@# Exit code 3: done, and the model checks put a sure edge in doubt.
	$(BIN)/vcuda fit sachs -o run-sachs --seed 0 || test $$? -eq 3

# One thread of BLAS for each worker of pytest: more wait for each other, at nearly twice the processor's time.
quick test coverage: export OPENBLAS_NUM_THREADS = 1
quick test coverage: export OMP_NUM_THREADS = 1
quick: check
	@echo "== tests that are not slow"
	$(BIN)/python -m pytest -n auto -m "not slow"

test: check
	@echo "== tests"
	$(BIN)/python -m pytest -n auto

coverage: $(READY)
	$(BIN)/python -m pytest -n auto --cov --cov-report term:skip-covered --cov-report html

fuzz: $(READY)
	PYTHONPATH=tests $(BIN)/python -m fuzzing

# In an environment of its own: uv resolves every direct dependency to its lower bound, and is needed for nothing else.
OLDEST := .venv-oldest
OLDEST_TESTS := $(addprefix tests/test_,import.py dataset.py streaming.py fit.py posterior.py contracts.py exact.py effects.py \
	estimator.py export.py plots.py cli_questions.py)
test-oldest: export OPENBLAS_NUM_THREADS = 1
test-oldest: export OMP_NUM_THREADS = 1
test-oldest:
	@echo "== making an environment with the oldest dependencies in $(OLDEST)"
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	@# Old packages call what newer ones below them deprecate: no fault of vcuda.
	$(OLDEST)/bin/python -m pytest -n auto -W default::DeprecationWarning $(OLDEST_TESTS)

lock: $(READY)
	@echo "# All tests passed with these versions. Made by: make lock. Use: pip install -c requirements-lock.txt '.[dev]'" \
		> requirements-lock.txt
	$(BIN)/python -m pip freeze --exclude-editable | grep '==' >> requirements-lock.txt

check: $(READY)
	@echo "== lint, format, types"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

frontend:
	@# Not npm ci: it asks for the bundler's binaries of every platform, and some registries have only a few.
	cd frontend && npm install --no-save --no-audit --no-fund && npm run build

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(READY)
	$(BIN)/mkdocs build --quiet --strict
	@echo "== site/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks all

clean:
	rm -rf $(VENV) $(OLDEST) run-sachs htmlcov site .coverage
