# Every target sets up its own .venv first; the stamp changes with what is to be installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: run test lint bench docs clean setup
.DEFAULT_GOAL := run

run: $(READY)
	@$(BIN)/twinbus up

test: lint
	@$(BIN)/python -m pytest

lint: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }

bench: $(READY)
	@$(BIN)/python -m bench

docs: $(READY)
	@$(BIN)/python -m twinbus.cli.reference > $(VENV)/cli.md && mv $(VENV)/cli.md docs/reference/cli.md
	@$(BIN)/python changes/collect.py
	@$(BIN)/python -m tests.contract_a.coverage > $(VENV)/coverage.md && mv $(VENV)/coverage.md docs/contract-coverage.md

setup: $(READY)

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "twinbus needs Python 3.11 or later; say which one with: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing what pyproject.toml asks for (a minute at first)"
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@rm -f $(VENV)/ready-* && touch $@

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf src/twinbus.egg-info
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
