# Every target sets up .venv first; the stamps change with the dependencies. Spark is half a gigabyte, so only the targets that use
# it install it, together with a Java for machines that have none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WANTED := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
READY := $(VENV)/ready-$(WANTED)
SPARK_READY := $(VENV)/spark-ready-$(WANTED)
SITE := build/site-venv
SITE_READY := $(SITE)/ready
# pytest rewrites a thousand modules, and a test may start a dozen processes: without this, environments that ask for no bytecode pay for
# that with every start. None of it is written beside the sources.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
INSTALL = PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

.PHONY: run demo check quick test test-core test-namespaces test-commands test-spark test-outages test-interop hosts nightly mutants lint bench docs pages site compatibility clean setup
.DEFAULT_GOAL := run

run: $(READY)
	@$(BIN)/twinbus up

demo: $(SPARK_READY)
	@$(BIN)/twinbus rehearse --report rehearsal.html

# For every day: lint, and the tests that start no namespace, on two cores.
check: $(SPARK_READY)
	@$(MAKE) --no-print-directory -j2 lint quick

quick: $(SPARK_READY)
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(QUICK:%=tests/%)

QUICK := amqp broker contract contract_a definitions docs gateway management meter model mutants store

# Six parts, the longest first, four at a time: each spends most of its time waiting for processes to start and for the disk.
test: lint
	@$(MAKE) --no-print-directory --keep-going -j4 test-core test-namespaces test-outages test-commands test-spark test-interop

test-core: $(SPARK_READY)
	@$(BIN)/python -m pytest --ignore tests/spark --ignore tests/interop $(OUTAGES:%=--ignore %) $(NAMESPACES:%=--ignore %) $(COMMANDS:%=--ignore %)

test-namespaces: $(SPARK_READY)
	$(call print_at_end,that start namespaces,$(NAMESPACES))

test-commands: $(SPARK_READY)
	$(call print_at_end,of commands and the portal,$(COMMANDS))

test-spark: $(SPARK_READY)
	$(call print_at_end,on Spark,tests/spark)

test-outages: $(SPARK_READY)
	$(call print_at_end,of outages,$(OUTAGES))

test-interop: $(SPARK_READY)
	$(call print_at_end,with other clients,tests/interop)

OUTAGES := tests/pairing tests/rehearsal
NAMESPACES := tests/attack tests/server
COMMANDS := tests/cli tests/portal
# $(1): what to call these tests; $(2): their folders.
print_at_end = @$(BIN)/python -m pytest $(2) > $(VENV)/$@.log 2>&1; status=$$?; \
	echo "tests $(1):"; cat $(VENV)/$@.log; exit $$status

# Three hosts made of network namespaces (as root) that fail by seed, under clients whose histories are checked. Two such clusters at a
# time, and none begins a schedule after so many minutes: make hosts SEEDS=50 MINUTES=10
hosts: $(SPARK_READY)
	@TWINBUS_HOST_SEEDS=0-$$(($(or $(SEEDS),50) - 1)) TWINBUS_HOST_MINUTES=$(or $(MINUTES),10) \
		$(BIN)/python -m pytest -m nightly -rs --timeout 900 --numprocesses 2 $(HOSTS)

HOSTS := tests/server/machines/test_failing_hosts.py

# Crashes at random points, again and again; for hours if you like: make nightly ROUNDS=100
nightly: $(SPARK_READY)
	@TWINBUS_SOAK_ROUNDS=$(or $(ROUNDS),3) $(BIN)/python -m pytest -m nightly --timeout 900 --ignore $(HOSTS)
	@$(MAKE) --no-print-directory hosts SEEDS=1000 MINUTES=240
	@$(MAKE) --no-print-directory mutants

# Random single changes to the broker, and which of them no quick test notices: make mutants SEED=7 COUNT=200 MINUTES=60
mutants: $(SPARK_READY)
	@$(BIN)/python -m tests.mutants $(SEED:%=--seed %) $(COUNT:%=--count %) $(MINUTES:%=--minutes %)

lint: $(SPARK_READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }

bench: $(SPARK_READY)
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.postgres
	@$(BIN)/python -m bench.table

docs: pages site

# The pages that are written from the code.
pages: $(SPARK_READY)
	@$(BIN)/python -m twinbus.cli.reference > $(VENV)/cli.md && mv $(VENV)/cli.md docs/reference/cli.md
	@$(BIN)/python -m twinbus.model.properties_page docs/reference/properties.md
	@$(BIN)/python -m twinbus.pipeline.reference > $(VENV)/spark.md && mv $(VENV)/spark.md docs/reference/spark-options.md
	@$(BIN)/python -m tests.contract_a.coverage

# All pages as HTML with search, in build/site; a link that leads nowhere is an error.
site: $(SITE_READY)
	@$(SITE)/bin/python docs/build_site.py build/site

$(SITE_READY): docs/requirements.txt
	@test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/requirements.txt
	@touch $@

# Every client and framework, also those that make test leaves out; the page is written from what their scenarios did.
compatibility: $(SPARK_READY)
	@rm -rf build/interop-results
	@$(BIN)/python -m pytest --timeout 900 -m "nightly or not nightly" tests/interop
	@$(BIN)/python -m tests.interop.compatibility > $(VENV)/compatibility.md && mv $(VENV)/compatibility.md docs/compatibility.md

setup: $(SPARK_READY)

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "twinbus needs Python 3.11 or later; choose one with: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the dependencies of pyproject.toml (half a minute the first time)"
	@$(INSTALL) .
	@rm -f $(VENV)/ready-* && touch $@

$(SPARK_READY): $(READY)
	@echo "installing Spark and the test dependencies (two minutes the first time)"
	@$(INSTALL) '.[dev,spark,connect,jre]'
	@rm -f $(VENV)/spark-ready-* && touch $@

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf src/twinbus.egg-info
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
