# The commands of the project. Each sets up .venv itself; Python 3.11+, git and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo
# Where Python keeps no compiled code, pytest compiles the modules of its plug-ins again in each run.
unexport PYTHONDONTWRITEBYTECODE
# JOBS=N: how many processes share the work of a command. Five by default for tests on two cores, as they often wait.

.PHONY: help install demo examples test lint format docs bench bench-goals bench-history bench-tiered bench-peers compatibility sim crashes specs prove fuzz chaos kills table-kills audit-proof wheel release clean
.DEFAULT_GOAL := help

help:  ## show the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## make .venv with Barnabas and all it needs for work on it

$(STAMP): pyproject.toml tools/setup_venv.sh
	@bash tools/setup_venv.sh $(PYTHON) $(VENV) test
	@touch $@

# The demo needs a third of that, unless the rest is there already.
$(DEMO): pyproject.toml tools/setup_venv.sh
	@[ $(STAMP) -nt pyproject.toml ] || bash tools/setup_venv.sh $(PYTHON) $(VENV) demo
	@touch $@

demo: $(DEMO)  ## a log line's way to a warehouse table; LOG=access.log[.gz] for your own
	@$(BIN)/barnabas demo $(if $(LOG),--log "$(LOG)") $(if $(OUT),--out "$(OUT)")

examples: $(STAMP)  ## what a log is for, on real data with Spark; NAME=activity for one; DATA=FOLDER
	@$(BIN)/barnabas examples run $(or $(NAME),all) --data "$(or $(DATA),../shared/data)" --out "$(or $(OUT),examples-out)"

# What tests/architecture and tests/docs/test_site.py look at is part of `make lint`.
# The tests of a package bear its name: core/log has tests/unit/log, adapters/coord_etcd has tests/adapters/test_coord_etcd*.
# Other packages have those of the package around them, or tests/integration/test_NAME*. A path below tests/ does as well.
NAME   = $(notdir $(PKG))
TESTS  = $(or $(wildcard tests/unit/$(NAME) tests/adapters/test_$(NAME)*.py tests/$(PKG) tests/$(PKG).py),\
              $(wildcard tests/unit/$(notdir $(patsubst %/,%,$(dir $(PKG))))),$(wildcard tests/integration/test_$(NAME)*.py))
test: $(STAMP)  ## run the tests, but for the slow ones; PKG=core/log for those of a package, ARGS="-m slow" for the slow ones
	$(if $(PKG),$(if $(TESTS),,$(error no tests of $(PKG): see tests/unit)))
	@$(BIN)/pytest $(if $(PKG),-q --workers $(or $(JOBS),2) $(TESTS),--workers $(or $(JOBS),6) --ignore=tests/architecture --ignore=tests/docs/test_site.py) $(ARGS)

lint: $(STAMP)  ## style, types, import rules, the documents as a site
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@bash tools/check_types.sh $(BIN)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pytest -q -p no:randomly tests/architecture tests/docs/test_site.py

docs: $(STAMP)  ## the documents as a site, in build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -P -m mkdocs build

format: $(STAMP)  ## put the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP)  ## measure, as ratios of one run
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-goals: $(STAMP)  ## what has a goal, beside Apache Kafka where it can be had: a quarter of an hour, at most 40 minutes
	@$(BIN)/python benchmarks/goals.py $(ARGS)

bench-history: $(STAMP)  ## a few ratios in two minutes; fails if one dropped by a tenth since the last runs on this machine
	@$(BIN)/python benchmarks/history.py $(ARGS)

bench-tiered: $(STAMP)  ## the goals of tiered storage: copying, cold reads, hot ones beside them, a restore: at most 12 minutes
	@$(BIN)/python benchmarks/goals.py --tiered $(ARGS)

bench-peers: $(STAMP)  ## the paper's experiments beside RabbitMQ and ActiveMQ, where they are installed
	@$(BIN)/python benchmarks/peers.py $(ARGS)

compatibility: $(STAMP)  ## what each Kafka client does with the broker; writes docs/compatibility.md
	@$(BIN)/pytest --workers $(or $(JOBS),2) -m '' tests/compatibility/test_compatibility.py tests/compatibility/test_secured_clients.py $(ARGS)
	@$(BIN)/python tools/compatibility_table.py

sim: $(STAMP)  ## clusters and brokers under a seeded clock, network and disk; SEEDS=10000 FIRST=0 STORY=cluster FRESH=1 RECORD=1
	@$(BIN)/python -P tools/simulate.py --seeds $(or $(SEEDS),10000) $(if $(FRESH),--fresh,--first $(or $(FIRST),0)) $(if $(RECORD),--record) $(if $(STORY),--story $(STORY)) --jobs $(or $(JOBS),2)

crashes: $(STAMP)  ## what recorded work leaves on a disk, after a crash at every moment of it; POINTS=100000 FIRST=0
	@$(BIN)/python -P tools/crashes.py --points $(or $(POINTS),100000) --first $(or $(FIRST),0) --jobs $(or $(JOBS),2)

specs: $(STAMP)  ## the TLA+ specifications of docs/spec, checked by TLC; FULL=1, ONLY=NAME
	@$(BIN)/python -P tools/check_specs.py $(if $(FULL),--full) $(if $(ONLY),--only $(ONLY))

prove: $(STAMP)  ## the long proofs: slow tests, properties, specifications, fresh seeds, chaos; MINUTES=30 RECORD=1 ONLY=slow
	@$(BIN)/python -P tools/prove.py --minutes $(or $(MINUTES),30) $(if $(ONLY),--only $(ONLY)) $(if $(RECORD),--record)

chaos: $(STAMP)  ## real clusters under faults, checked by what clients saw; MINUTES=2, half over ZooKeeper, half over etcd
	@PYTHONPATH=tests $(BIN)/python -P -m chaos --minutes $(or $(MINUTES),2) $(ARGS)

kills: $(STAMP)  ## kill -9 under transactional load: nothing lost, doubled or there in part; ROUNDS=100
	@PYTHONPATH=tests $(BIN)/python -P -m kills --rounds $(or $(ROUNDS),100) $(ARGS)

table-kills: $(STAMP)  ## kill -9 at every part of a load, over tables of each format; ROUNDS=100
	@PYTHONPATH=tests $(BIN)/python -P -m table_kills --rounds $(or $(ROUNDS),100) $(ARGS)

audit-proof: $(STAMP)  ## kill -9 anything between producer and table: the audit must explain every message; ROUNDS=30
	@PYTHONPATH=tests $(BIN)/python -P -m audit_kills --rounds $(or $(ROUNDS),30) $(ARGS)

fuzz: $(STAMP)  ## bytes that no decoder expects, guided by the code that they reach; MINUTES=10 TARGET="record batches"
	@$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3'
	@$(BIN)/python -P tools/fuzz.py --minutes $(or $(MINUTES),10) $(if $(TARGET),--target "$(TARGET)") --jobs $(or $(JOBS),2)

wheel: $(STAMP)  ## a wheel, a compiled one where there is a C compiler, and the sources in dist/, tried in empty environments
	@rm -rf dist build
	@$(BIN)/python -m build --outdir dist . > /dev/null
	@rm -rf build
	@if command -v $${CC:-cc} > /dev/null; then BARNABAS_COMPILE=1 $(BIN)/python -m build --wheel --outdir dist . > /dev/null; \
	    else echo "there is no C compiler, and so no compiled wheel" >&2; fi
	@rm -rf build
	@$(BIN)/python -P tools/check_dist.py dist

release: $(STAMP)  ## the files of a version in build/release, of a committed tree; KEY=FILE signs the checksums. Publishes nothing
	@$(BIN)/python -P tools/release.py build $(if $(KEY),--key "$(KEY)")

clean:  ## remove what the commands made
	rm -rf $(VENV) .build dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
