# Magnetar: every door in one place. `make run` and `make test` do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 6650
HTTP ?= 8080
DATA ?= data
ARGS ?=
# Python keeps compiled test files from stage to stage, also where the environment forbids it.
unexport PYTHONDONTWRITEBYTECODE
ORACLE_URL ?= pulsar://127.0.0.1:6650
ORACLE_HTTP ?= http://127.0.0.1:8080
ORACLE_AUTH_URL ?= pulsar://127.0.0.1:6750
ORACLE_AUTH_HTTP ?= http://127.0.0.1:8180

.PHONY: packages setup lock run test lint format types unit blackbox attack cluster-sample cluster side-by-side conformance conformance-recorded conformance-wire conformance-pure spark spark-long oracle-record oracle-record-auth oracle-walks oracle-roams oracle-strolls oracle-pipeline image image-test newcomer fault-kit-languages fuzz crash-long simulate soak bench bench-scenarios bench-pulsar docs site help clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
.DELETE_ON_ERROR:

$(BIN)/magnetar: pyproject.toml setup.py requirements/broker.txt $(wildcard protocol/*.c delayed/*.c broker/dispatchers/*.c bookkeeper/wire/*.c storage/embedded/*.c storage/embedded/journal/*.c converters/kafka_entry/*.c)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "installing magnetar into $(VENV) ..."
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --require-hashes -r requirements/broker.txt
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-deps --editable .
	@$(BIN)/python -m compileall -q magnetar broker protocol bookkeeper storage delayed converters client console importing pipeline cli testing
	@touch $@

$(VENV)/.test-stamp: $(BIN)/magnetar requirements/ci.txt
	@echo "installing what the tests need ..."
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/ci.txt
	@touch $@

setup: $(VENV)/.test-stamp  ## virtual environment with everything

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

lock:  ## the versions that CI and the image install, with their hashes, from pyproject.toml; ARGS=--upgrade for the newest
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet 'uv>=0.5,<1'
	$(COMPILE) $(ARGS) -o requirements/broker.txt pyproject.toml
	$(COMPILE) $(ARGS) --extra test --extra dev -c requirements/broker.txt -o requirements/ci.txt pyproject.toml

run: $(BIN)/magnetar  ## a broker in the foreground on 6650 and 8080
	@exec $(BIN)/magnetar standalone --data-dir $(DATA) --set brokerServicePort=$(PORT) --set webServicePort=$(HTTP) $(ARGS)

STAGE := $(BIN)/python -m tests.stage

test: lint side-by-side attack  ## everything that must pass

# Scenarios mostly wait for silence, a cluster for Java, clients for brokers: these stages follow each other beside the
# unit tests, which compute and have a lower priority. Each has its output in one piece. Attacks need the machine.
side-by-side: setup
	@$(MAKE) --no-print-directory -j 2 --output-sync=target 'LATER=nice -n 10' unit cluster-sample spark conformance-recorded blackbox types conformance-wire

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup
	$(BIN)/mypy

# The parts of the broker that see entries; the others never call the compiled helper.
PURE := $(wildcard tests/broker/test_*.py) $(addprefix tests/broker/,clustering compaction consumers dispatchers foreign_entries handlers network prometheus subscriptions topics traces websocket)

unit: setup  ## unit, property, model, crash (sample) and fuzz (sample) tests
	$(LATER) $(STAGE) unit -n 2 -q tests --ignore=tests/blackbox --ignore=tests/attack --ignore=tests/conformance --ignore=tests/pipeline/spark --ignore=tests/cluster
	MAGNETAR_PURE=1 $(LATER) $(STAGE) pure -n 2 -q tests/protocol $(PURE)

conformance: conformance-recorded conformance-wire  ## recorded answers of Apache Pulsar; over the pure helper a part of those of the binary protocol

conformance-recorded: setup
	$(STAGE) conformance -q tests/conformance

conformance-wire: setup
	MAGNETAR_PURE=1 MAGNETAR_CONFORMANCE_SHARE=4 $(STAGE) conformance-wire -q tests/conformance/test_conformance.py -k wire_

conformance-pure: setup  ## all recorded answers over the pure helper
	MAGNETAR_PURE=1 $(STAGE) conformance-pure -q tests/conformance

SCENARIOS := $(wildcard tests/conformance/scenarios/*.py)
SECURITY := $(wildcard tests/conformance/scenarios/security*.py)
RECORD = $(BIN)/python tests/conformance/transcript.py record --new --jobs 8 --golden tests/conformance/golden

oracle-record: setup  ## record new scenarios against an Apache Pulsar on ORACLE_URL and ORACLE_HTTP
	$(RECORD) --url $(ORACLE_URL) --http $(ORACLE_HTTP) $(filter-out $(SECURITY),$(SCENARIOS))

oracle-record-auth: setup  ## those of security, against one with auth.conf on ORACLE_AUTH_URL and ORACLE_AUTH_HTTP
	$(RECORD) --url $(ORACLE_AUTH_URL) --http $(ORACLE_AUTH_HTTP) $(SECURITY)

oracle-walks: setup  ## random walks against that Apache Pulsar and Magnetar; ARGS="--first SEED --walks N"
	$(BIN)/python tests/conformance/walks.py --oracle $(ORACLE_URL) $(ORACLE_HTTP) $(ARGS)

oracle-roams: setup  ## the same over all commands, topics and policies of a namespace
	$(BIN)/python tests/conformance/roams.py --oracle $(ORACLE_URL) $(ORACLE_HTTP) $(ARGS)

oracle-strolls: setup  ## the same through the admin API
	$(BIN)/python tests/conformance/strolls.py --oracle $(ORACLE_URL) $(ORACLE_HTTP) $(ARGS)

oracle-pipeline: setup  ## source and sink of the pipeline at that Apache Pulsar
	MAGNETAR_ORACLE_URL=$(ORACLE_URL) MAGNETAR_ORACLE_HTTP=$(ORACLE_HTTP) $(BIN)/python -m pytest -q tests/pipeline/test_apache_pulsar.py

blackbox: setup  ## the official client against a broker process
	$(STAGE) blackbox -n 4 --dist worksteal --timeout 300 -q tests/blackbox

spark: setup  ## the pipeline in a real Spark session, against a broker process; needs Java 17
	$(STAGE) spark -q tests/pipeline/spark

spark-long: setup  ## a million messages on all paths; a standalone cluster; twenty kills of each stream
	MAGNETAR_PIPELINE_MESSAGES=1000000 $(BIN)/python -m pytest -q tests/pipeline/test_three_paths.py
	MAGNETAR_SPARK_CLUSTER=1 $(BIN)/python -m pytest -q tests/pipeline/spark/test_cluster.py
	MAGNETAR_SPARK_KILLS=20 $(BIN)/python -m pytest -q -s tests/pipeline/spark/test_kills.py

image: setup  ## the container image `magnetar`; needs podman or docker
	$(BIN)/python -m pip install --quiet 'wheel>=0.45,<1'
	PYTHON=$(BIN)/python docker/build.sh $(IMAGE_BUILD)

image-test: image  ## the image in real containers, by Testcontainers of Python, Java, Go and Node, and by compose
	$(BIN)/python -m pip install --quiet 'testcontainers>=4.9,<5'
	MAGNETAR_IMAGE=$${MAGNETAR_IMAGE:-magnetar} $(BIN)/python -m pytest -q tests/image

newcomer:  ## the steps of a new user with the README alone, in a bare container; ARGS: options of podman run
	tests/newcomer/newcomer.sh $(ARGS)

fault-kit-languages: setup  ## the JUnit and Go programs of docs/fault-kit.md; needs Java 17 with Maven, and Go
	MAGNETAR_LANGUAGES=1 $(BIN)/python -m pytest -q tests/testing/test_docs.py

attack: setup  ## the attacks of docs/security.md against a broker process
	$(STAGE) attack -n 2 --dist worksteal --timeout 300 -q tests/attack

cluster-sample: setup  ## quick tests on a real ZooKeeper and real bookies; needs Java 17 and Maven, else skipped
	$(STAGE) cluster -q tests/cluster
	$(BIN)/python -m tests.cluster.on_bookkeeper sample

cluster: setup  ## the same with random histories by the thousand and faults that take minutes
	$(BIN)/python -m tests.cluster.pulsar_jars
	MAGNETAR_CLUSTER_LONG=1 $(BIN)/python -m pytest -q tests/cluster tests/bookkeeper tests/model/test_two_owners.py tests/model/test_owners_on_bookies.py tests/model/test_wide_owners.py tests/model/test_compacting_owners.py --timeout 3600
	$(BIN)/python -m tests.cluster.on_bookkeeper conformance
	$(BIN)/python -m tests.cluster.on_bookkeeper blackbox

GUIDED := frames entries http schemas rest_body kafka journal ledger_file metadata_log metadata_files cursors buckets backups
GUIDED_SECONDS ?= 120
ATHERIS := atheris>=3,<4

fuzz: setup  ## long fuzzing of everything that reads foreign bytes
	MAGNETAR_FUZZ_SECONDS=600 $(BIN)/python -m pytest -q tests/fuzz --timeout 1200
	@$(BIN)/python -m pip install --quiet '$(ATHERIS)'
	for target in $(GUIDED); do \
		MAGNETAR_PURE=1 $(BIN)/python tests/fuzz/guided.py $$target -max_total_time=$(GUIDED_SECONDS) || exit 1; \
	done
	tests/fuzz/asan.sh 300 $(BIN)/python
	tests/fuzz/compiled/run.sh $(GUIDED_SECONDS) $(BIN)/python

crash-long: setup  ## every crash point, thousands of random histories, and kill -9 under live clients
	MAGNETAR_CRASH_LONG=1 $(BIN)/python -m pytest -n 2 -q tests/crash tests/simulation/test_simulation.py tests/model/test_broker_model.py tests/storage/managed/cursors/test_full_disk.py tests/blackbox/test_kill.py tests/blackbox/test_kill_mixed.py tests/blackbox/test_churn.py tests/blackbox/test_delayed.py tests/blackbox/test_kafka_import.py tests/blackbox/test_damaged_directory.py --timeout 3600

soak: setup  ## ten minutes of surging, stuck, slow and reconnecting clients
	MAGNETAR_SOAK_SECONDS=600 $(BIN)/python -m pytest -q tests/blackbox/test_soak.py --timeout 1200

SEEDS ?= 100000
FIRST ?= 0

simulate: setup  ## a whole broker on a simulated disk and network; SEEDS=N FIRST=N, a failing seed says how to replay it
	PYTHONHASHSEED=0 $(BIN)/python -W ignore -m tests.simulation --first $(FIRST) --seeds $(SEEDS)

packages: setup  ## wheel and sdist into build/dist, each installed into an empty environment and tried there
	$(BIN)/python -m pip install --quiet 'build>=1.2,<2'
	rm -rf build/dist build/installed
	$(BIN)/python -m build --quiet --outdir build/dist .
	for package in build/dist/*.whl build/dist/*.tar.gz; do \
	  rm -rf build/installed && $(PYTHON) -m venv build/installed && \
	  build/installed/bin/python -m pip install --quiet "$$package" && \
	  build/installed/bin/python .ci/installed.py || exit 1; done
	rm -rf build/installed

docs: setup  ## generate conf/standalone.conf and docs/settings.md from the table of settings
	$(BIN)/python -m magnetar.broker.settings_docs

site: setup  ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: setup  ## all contenders in one interleaved run; ARGS="--rounds 5 --json FILE --plots FOLDER"
	$(BIN)/python bench/contenders.py $(ARGS)

bench-scenarios: setup  ## each scenario beside the limit server, fresh processes; ARGS="NAME ..." or components
	$(BIN)/python -m bench $(ARGS)

PULSAR_JARS := $(HOME)/.cache/magnetar/pulsar-standalone

bench-pulsar:  ## the jars of an Apache Pulsar as a contender (250 MB); needs Maven, and Java 17 to run it
	mvn -q -B -f bench/pulsar-pom.xml org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=$(PULSAR_JARS)

clean:
	rm -rf $(VENV) build *.egg-info
