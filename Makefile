.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
ifneq ($(words $(VENV)),1)
$(error VENV is '$(VENV)'; name one folder, without spaces: make VENV=FOLDER)
endif
BIN := $(VENV)/bin
RUNNING := $(VENV)/.running
STAMP := $(VENV)/.installed
# Index of PyTorch's builds without CUDA; empty, torch comes from where all else comes from.
export TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Setup compiles nothing: Python does, once, whatever is used.
unexport PYTHONDONTWRITEBYTECODE
# Trace folder for benchmarks and conformance tests; without it those are skipped.
export SHOCKWAVE_DATA ?= ../shared/data

.PHONY: help setup run test quick check bench clean
.NOTPARALLEL:

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## Make .venv with all that run, test, check and bench need

$(RUNNING) $(STAMP): pyproject.toml constraints.txt
	@test "$$($(PYTHON) -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null)" = True || \
	  { echo 'Python 3.11 or newer is needed, and $(PYTHON) is not; name another: make PYTHON=python3.11' >&2; exit 2; }
	@$(PYTHON) tools/environment.py $(VENV) $(if $(filter $(STAMP),$@),dev)
	@touch $(RUNNING) $@

run: $(RUNNING) ## Run a generated workload under Shockwave, FIFO and SRTF
	$(BIN)/shockwave compare

test: $(STAMP) ## Run all tests
	$(BIN)/python -m pytest -n auto --dist load

quick: $(STAMP) ## Run the tests that start no program, server or browser, in a minute
	$(BIN)/python -m pytest -n auto --dist load --quick --durations 5 --durations-min 2

check: $(STAMP) ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(STAMP) ## Run the benchmarks
	lacking=$$($(BIN)/python -c 'from harness.dockerd import missing; print(missing())') || exit 1; \
	for script in $$(grep -l '^if __name__' benchmarks/*.py benchmarks/*/*.py); do \
	  name=$$(echo $$script | sed 's|^benchmarks/||; s|/__main__||; s|\.py$$||; s|/|.|'); \
	  if [ -n "$$lacking" ] && grep -q '^from harness.dockerd' $$script; \
	  then echo "$$name: skipped, $$lacking"; \
	  else $(BIN)/python -m benchmarks.$$name || exit 1; fi; \
	done

clean: ## Remove what setup and the tools made; records in var/ stay
	rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
