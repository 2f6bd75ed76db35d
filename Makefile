# Ariane's commands. Each target sets up what it needs by itself, from a bare clone; repeated calls are quick.
#
#   make setup    a virtual environment in .venv, everything installed, the kernel compiled
#   make run      a name server and a broker with data in ./.ariane; Ctrl-C stops them
#   make check    format, lint, types, imports, quick tests; under two minutes
#   make test     check, then every other test, with real Java and Go clients; under twenty minutes
#   make bench    side by side with Apache RocketMQ, Kafka and their Python clients (BENCH="--quick --only send-128")
#   make soak     load, faults and kills for SOAK_MINUTES (60), planted bugs, SOAK_HISTORIES (100) under Spark,
#                 SOAK_SCHEDULES (1000) of a client that is cancelled and closed
#   make kernel   compile the kernel again
#   make lock     resolve requirements.lock and requirements-spark.lock anew from pyproject.toml
#   make clean    remove everything that was built or fetched, but no data

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
STAMPS := .venv/.stamps
KERNEL := $(wildcard src/ariane/*/*.pyx src/ariane/*/*.pxd src/ariane/*/*.h)
APACHE := .cache/apache
JAVA_CLASSES := tests/interop/java/target
GO_CLIENT := tests/interop/go/target/interop
LOAD := benchmarks/bin
PIP_COMPILE := .venv/lock/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
WORKERS ?= 4
SOAK_MINUTES ?= 60
SOAK_HISTORIES ?= 100
SOAK_SCHEDULES ?= 1000
BENCH ?=

help:
	@sed -n '3,/^$$/s/^# *//p' Makefile

# --- set-up -------------------------------------------------------------------------------------------------------

setup: $(STAMPS)/installed
	@:

$(STAMPS)/locked: requirements.lock scripts/need
	@scripts/need python compiler
	@echo "setup: packages of requirements.lock into .venv"
	@test -x $(BIN)/python || "$$(scripts/need --which python)" -m venv .venv
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/installed: $(STAMPS)/locked pyproject.toml setup.py $(KERNEL)
	@scripts/need compiler
	@echo "setup: compiling the kernel"
	@$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

# Spark is 450 MB, which nobody needs who only runs a broker: its packages are added by the targets that use them.
spark: $(STAMPS)/spark
	@:

$(STAMPS)/spark: requirements-spark.lock | $(STAMPS)/installed
	@echo "setup: PySpark and Arrow of requirements-spark.lock into .venv (a minute the first time)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-spark.lock
	@touch $@

kernel:
	@rm -f $(STAMPS)/installed
	@$(MAKE) --no-print-directory setup

lock:
	@scripts/need python
	@test -d .venv/lock || "$$(scripts/need --which python)" -m venv .venv/lock
	@.venv/lock/bin/python -m pip install --quiet pip-tools
	@$(PIP_COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	@sed -i '1i # What `make setup` installs, with hashes. Written by `make lock`; never edited.' requirements.lock
	@$(PIP_COMPILE) --extra spark --constraint requirements.lock --output-file requirements-spark.lock pyproject.toml
	@sed -i '1i # What `make spark` adds, with hashes. Written by `make lock`; never edited.' requirements-spark.lock

# --- run, check, test ---------------------------------------------------------------------------------------------

run: setup
	@exec $(BIN)/ariane up --data .ariane

check: setup spark
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests/harness tests/interop benchmarks
	$(BIN)/lint-imports
	$(BIN)/pytest -m quick --numprocesses logical --dist worksteal

# Most of these wait, for processes and for time to pass; so more of them run at once than there are cores.
test: check clients
	$(BIN)/pytest -m "not quick" --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

soak: setup spark
	@$(BIN)/python tests/end_to_end/soak.py --minutes $(SOAK_MINUTES)
	@$(BIN)/python -m tests.planted
	@$(BIN)/python tests/spark/histories.py --histories $(SOAK_HISTORIES)
	@$(BIN)/python -m tests.harness.schedules --schedules $(SOAK_SCHEDULES)

# --- peers: Apache RocketMQ and its clients -----------------------------------------------------------------------

clients: $(JAVA_CLASSES)/.compiled $(GO_CLIENT)

$(APACHE)/.fetched: scripts/apache-rocketmq.xml
	@scripts/need java maven
	@echo "setup: Apache RocketMQ's published jars into $(APACHE) (some minutes the first time)"
	@mvn --quiet --batch-mode -f $< dependency:copy-dependencies \
	    -DoutputDirectory="$(CURDIR)/$(APACHE)/lib" -DincludeScope=runtime
	@touch $@

kafka: .cache/kafka/.fetched
	@:

.cache/kafka/.fetched .cache/rocketmq-proxy/.fetched .cache/spark-kafka/.fetched: .cache/%/.fetched: scripts/apache-%.xml
	@scripts/need java maven
	@echo "setup: Apache's published jars of $* into .cache/$*"
	@mvn --quiet --batch-mode -f $< dependency:copy-dependencies \
	    -DoutputDirectory="$(CURDIR)/.cache/$*/lib" -DincludeScope=runtime
	@touch $@

peers: .cache/peers/aiokafka/.installed .cache/peers/rocketmq/.installed
	@:

# Python clients to compare with, each in an environment of its own: their packages are not ours.
.cache/peers/%/.installed: benchmarks/programs/%.txt
	@scripts/need python
	@echo "setup: $$(cat $<) into .cache/peers/$*"
	@test -x .cache/peers/$*/bin/python || "$$(scripts/need --which python)" -m venv .cache/peers/$*
	@.cache/peers/$*/bin/python -m pip install --quiet -r $<
	@touch $@

$(JAVA_CLASSES)/.compiled: $(APACHE)/.fetched $(wildcard tests/interop/java/*.java)
	@scripts/need java
	@mkdir -p $(JAVA_CLASSES)
	@javac -nowarn -XDsuppressNotes -d $(JAVA_CLASSES) -cp "$(APACHE)/lib/*" tests/interop/java/*.java
	@touch $@

$(GO_CLIENT): $(wildcard tests/interop/go/*.go) tests/interop/go/go.mod tests/interop/go/go.sum
	@scripts/need go
	@mkdir -p $(@D)
	@cd tests/interop/go && go build -o target/interop .

# --- benchmarks ---------------------------------------------------------------------------------------------------

# Without peers, nothing of theirs is fetched.
COMPARED := $(APACHE)/.fetched .cache/kafka/.fetched .cache/rocketmq-proxy/.fetched .cache/spark-kafka/.fetched peers

bench: setup spark $(LOAD)/rmqload $(LOAD)/popload $(LOAD)/nullserver \
    $(if $(findstring --ours-only,$(BENCH)),,$(COMPARED))
	@$(BIN)/python -m benchmarks.run $(BENCH)

$(LOAD)/%: benchmarks/load/%.c
	@scripts/need compiler
	@mkdir -p $(@D)
	@$(CC) -O2 -std=gnu11 -Wall -Wextra -o $@ $<

clean:
	rm -rf .venv .cache build $(JAVA_CLASSES) $(dir $(GO_CLIENT)) $(LOAD) src/*.egg-info
	rm -f src/ariane/*/*.so src/ariane/*/*.c src/ariane/*/*.html
	rm -rf .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.PHONY: help setup spark kernel lock run check test soak clients kafka peers bench clean
