# suiro: every command a contributor needs. Only Python >= 3.11, make and git are expected.

PYTHON  ?= python3
WORKERS ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Compiled kernels and Spark's classes, once. All goes on without, only slower.
PREPARE := -$(BIN)/suiro prepare

.PHONY: demo test bench soak matrix pythons lint reference site constraints release clean

## The main job on real data, from an empty machine to checked counts. DEMO="--plain --kafka" passes options on.
demo: $(VENV)/.installed-demo
	$(BIN)/suiro demo $(DEMO)

## Everything a change must pass, WORKERS files of tests at a time. TESTS="tests/unit -k codec" narrows it.
test: lint $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

## Style, types and the layer contracts.
lint: $(VENV)/.packages-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## Every benchmark, small; prints each ratio with the peer's name.
bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

## What CI has no time for: the other scenarios on Apache Kafka, fuzzing, and kill -9 at drawn moments for as long as
## SUIRO_SOAK_SECONDS says. With `make test` it is every test there is.
## MINUTES=45 instead: a pipeline, a log and a checker together for so long, all of it killed again and again; its totals
## are added to the page of exactly once. SOAK="--broker kafka --seed 7" passes options on.
soak: $(VENV)/.installed-dev
ifdef MINUTES
	$(BIN)/python -m tests.soak --record --minutes $(MINUTES) $(SOAK)
else
	SUIRO_TESTS_WHOLE=1 $(BIN)/python -m pytest -m "soak or sampled or hypothesis" --override-ini timeout=0 -s
endif

## The failure matrix of exactly once on every broker; its runs are added to the page. MATRIX="--broker node" narrows it.
matrix: $(VENV)/.installed-dev
	$(BIN)/python -m tests.matrix --record --spark 1 $(MATRIX)

## The suites on every Python that this machine has, and with the oldest dependencies (noxfile.py).
## PYTHONS="-s tests-3.13" is one of them.
pythons: $(VENV)/.installed-dev
	$(BIN)/python -m nox $(PYTHONS)

## The pages of docs/reference that are made from the code.
reference: $(VENV)/.installed-dev
	$(BIN)/python docs/reference/generate.py

## The documentation site, in build/site/html. SITE=--serve shows it in a browser.
site: $(VENV)/.installed-dev
	$(BIN)/python tools/documentation.py $(SITE)

## Renews constraints.txt: the newest versions that pyproject.toml allows, by name and version only.
constraints:
	rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	{ echo '# Every dependency of development, demo and tests, pinned by name and version. `make constraints` renews it.'; \
	  build/constraints/bin/python -m pip freeze --exclude suiro; } > constraints.txt
	rm -rf build/constraints

## Checks, builds, tries and tags VERSION (`python -m tools.release prepare VERSION` comes before it); DRY_RUN=1 does
## not test and not tag. It uploads nothing, and says what is left to do.
release: $(VENV)/.installed-dev
	$(BIN)/python -m tools.release make $(VERSION) $(if $(DRY_RUN),--dry-run)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The stamps hold what is installed: a second run starts at once, a changed pyproject.toml installs again.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("suiro needs Python 3.11 or later, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once; Spark is the big one)"
	$(PIP) -e '.[demo]'
	$(PREPARE)
	@touch $@

$(VENV)/.packages-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once; Spark is the big one)"
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.packages-dev
	$(PREPARE)
	@touch $@ $(VENV)/.installed-demo
