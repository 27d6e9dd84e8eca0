# Engram's commands. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs bench prove clean distclean

BIN := .venv/bin
export MUJOCO_GL ?= egl
# Two torch thread pools on the same cores collapse: every process keeps to one thread.
export OMP_NUM_THREADS ?= 1
# Processes among which `make test` shares out the tests (tests/workers.py); each holds about 2 GB.
WORKERS ?= 2
# Parts of the proofs that `make prove` runs (engram prove --help).
PARTS ?= loop memory policy faults learner gate promise

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## build the environment in .venv (idempotent; returns at once when nothing changed)
	@.ci/setup

demo: setup  ## the whole loop with its viewer; HEADLESS=1 EPISODES=n ends by itself; LEARNING=1: a robot learns
	@$(BIN)/engram demo $(ARGS)

test: setup lint  ## lint, then every test (ARGS="-k memory" passes on to pytest)
	@# with bytecode: else each of the processes that tests start compiles Engram anew where PYTHONDONTWRITEBYTECODE is set
	@PYTHONDONTWRITEBYTECODE= ROS_PYTHON_CHECK_FIELDS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: setup  ## ruff, and the arrows between the rooms (.importlinter)
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache

types: setup  ## mypy over engram
	@$(BIN)/mypy

docs: setup  ## the documentation as web pages in site/; fails for a broken link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "written to site/; to read it with its search box: $(BIN)/mkdocs serve"

bench: setup  ## every table in benchmarks/: ours, peer, limit, ratio
	@failed=0; for part in sim loop perception memory stores eviction policy chunking learner; do \
		$(BIN)/engram bench $$part $(ARGS) || failed=1; done; exit $$failed

prove: setup  ## every figure from its seeds (days); PARTS=gate: that part alone; ARGS=--quick: smaller runs
	@failed=0; for part in $(PARTS); do $(BIN)/engram prove $$part $(ARGS) || failed=1; done; exit $$failed

clean:  ## remove caches and build outputs, keep .venv
	@rm -rf build install log dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## remove .venv and .tools too
	@rm -rf .venv .tools
