.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Trace folder for benchmarks and conformance tests; without it those are skipped.
export SHOCKWAVE_DATA ?= ../shared/data

.PHONY: help setup run test check bench clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## Make .venv with the exact versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: $(STAMP) ## Run a generated workload under Shockwave, FIFO and SRTF
	$(BIN)/shockwave compare

test: $(STAMP) ## Run all tests
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(STAMP) ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(STAMP) ## Run the benchmarks
	lacking=$$($(BIN)/python -c 'from harness.dockerd import missing; print(missing())') || exit 1; \
	for script in $$(grep -l '^if __name__' benchmarks/*.py benchmarks/*/__main__.py); do \
	  name=$$(echo $$script | sed 's|^benchmarks/||; s|/__main__||; s|\.py$$||'); \
	  if [ -n "$$lacking" ] && grep -q '^from harness.dockerd' $$script; \
	  then echo "$$name: skipped, $$lacking"; \
	  else $(BIN)/python -m benchmarks.$$name || exit 1; fi; \
	done

clean: ## Remove what setup and the tools made; records in var/ stay
	rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
