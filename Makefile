# Everything runs from .venv; `make install` builds it and is a no-op while nothing it depends on changed.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint format bench clean

help:
	@echo "make demo    train a small model for real, with the dashboard on screen"
	@echo "make test    lint, types and the whole test suite"
	@echo "make bench   every benchmark, one JSON line a figure"
	@echo "make install build .venv with everything in it (.venv/bin/rankscope)"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade "pip>=25.1"
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group dev --editable ".[all]"
	@touch $@

demo: install
	$(VENV)/bin/rankscope demo

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: lint
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist loadfile

format: install
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: install
	@for b in bench/*.py; do case $$b in bench/_*) ;; *) $(VENV)/bin/python $$b || exit 1 ;; esac; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
