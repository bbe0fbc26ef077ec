# Magnetar: every door in one place. `make run` and `make test` do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 6650
HTTP ?= 8080
DATA ?= data
ARGS ?=

.PHONY: setup run test quick lint format types unit blackbox conformance fuzz crash-long soak bench proto docs clean
.DELETE_ON_ERROR:

$(BIN)/magnetar: pyproject.toml setup.py $(wildcard protocol/*.c)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "installing magnetar into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test-stamp: $(BIN)/magnetar
	@echo "installing what the tests need ..."
	@$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	@touch $@

setup: $(VENV)/.test-stamp  ## virtual environment with everything

run: $(BIN)/magnetar  ## a broker in the foreground on 6650 and 8080
	@exec $(BIN)/magnetar standalone --data-dir $(DATA) --set brokerServicePort=$(PORT) --set webServicePort=$(HTTP) $(ARGS)

test: lint types unit conformance blackbox  ## everything that must pass

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup
	$(BIN)/mypy

unit: setup  ## unit, property, model, crash (sample) and fuzz (sample) tests
	$(BIN)/pytest -n 2 -q tests --ignore=tests/blackbox --ignore=tests/conformance
	MAGNETAR_PURE=1 $(BIN)/pytest -n 2 -q tests/protocol tests/broker

conformance: setup  ## recorded answers of Apache Pulsar, over the compiled and the pure helper
	$(BIN)/pytest -q tests/conformance
	MAGNETAR_PURE=1 $(BIN)/pytest -q tests/conformance

blackbox: setup  ## the official client against our process
	$(BIN)/pytest -q tests/blackbox

fuzz: setup  ## long fuzzing of everything that reads foreign bytes
	MAGNETAR_FUZZ_SECONDS=600 $(BIN)/pytest -q tests/fuzz --timeout 1200

crash-long: setup  ## every crash point, and kill -9 under live clients
	MAGNETAR_CRASH_LONG=1 $(BIN)/pytest -n 2 -q tests/crash tests/blackbox/test_kill.py --timeout 3600

soak: setup  ## ten minutes of surging, stuck, slow and reconnecting clients
	MAGNETAR_SOAK_SECONDS=600 $(BIN)/pytest -q tests/blackbox/test_soak.py --timeout 1200

bench: setup  ## every benchmark; figures go to docs/performance.md by hand
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build *.egg-info
