# Every target sets up what it needs in .venv: a fresh machine needs Python 3.11 or newer and make, nothing else.

VENV := .venv
BIN := $(VENV)/bin
OUT ?= runs/demo
NONE_SELECTED := 5
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11 python,\
	$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))

.DEFAULT_GOAL := help
.PHONY: help demo test check bench schema gallery docs dist clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-record  ## record a small GPT on two CPU ranks and print the verdict (OUT=runs/demo)
	@$(BIN)/stepscope run --nproc-per-node 2 --steps 8 --out $(OUT) --force gpt

test: $(VENV)/.ready-dev  ## run the tests (ARGS="-k name" and the like are handed to pytest)
	$(BIN)/pytest -m 'not measures' --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS) || [ $$? = $(NONE_SELECTED) ]
	$(BIN)/pytest -m measures $(ARGS) || [ $$? = $(NONE_SELECTED) ]

check: $(VENV)/.ready-dev  ## lint, formatting, types and the import contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready-dev  ## measure reading and auditing large traces beside peers; fails over budget (ARGS are handed on)
	$(BIN)/python -m benchmarks $(ARGS)

schema: $(VENV)/.ready-dev  ## write the JSON Schema of audit.json anew from the code
	$(BIN)/python -m stepscope.schema.generate

gallery: $(VENV)/.ready-dev  ## record and write the samples of reports/gallery (studies have commands of their own)
	$(BIN)/python -m benchmarks.samples $(ARGS)
	$(BIN)/python -m benchmarks.cause_pictures

docs: $(VENV)/.ready-docs  ## build the guide: docs/_build/html/index.html
	$(BIN)/sphinx-build --fail-on-warning --quiet docs docs/_build/html

dist: $(VENV)/.ready-dev  ## build the source distribution, and the wheel from it: dist/
	$(BIN)/python -m build --no-isolation

clean:  ## remove the virtual environment, the tools' caches and what was built (recorded runs stay)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# .ready-record marks what recording needs, .ready-dev the tools as well.
$(VENV)/.ready-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'Setting up $(VENV), once: what [$*] needs, torch among it ...'
	@$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@ $(VENV)/.ready-record

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo 'stepscope needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3' >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
