# Everything a checkout needs: `make help`.  Works from a clean clone, without root, with
# GNU make, a shell and Python 3.11 or newer; all downloads are checked against the hashes in
# requirements/.  Stamp files in .venv remember what is installed, so a second run is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?= -n 3   # on two cores: many tests wait for processes
# Fails, too, when a process is still alive after the tests.
PYTEST := $(BIN)/python -m tests.survivors $(BIN)/python -m pytest
CHECKED := palyra tests clients $(if $(wildcard bench/*.py),bench)

# Tests start interpreters by the dozen: each would compile everything it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test browser console shots bare package container clients lint types check cover torture damage simulate mutants bench docs lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

run: $(VENV)/run.stamp  ## install and run the demonstration
	$(BIN)/python -m palyra.cli.host.demo

test: $(VENV)/test.stamp  ## run the test suite (PYTEST_ARGS="-k name" narrows it)
	$(PYTEST) $(PYTEST_ARGS)

browser: $(VENV)/browser.stamp  ## install what the tests of the console in Chromium need (170 MB)

console: $(VENV)/browser.stamp  ## all tests of the console: each screen in both themes, at both widths
	$(PYTEST) $(PYTEST_ARGS) --dist worksteal -m "slow or not slow" --timeout=600 tests/console

shots: $(VENV)/browser.stamp  ## take the screenshots of the documents again (docs/pictures)
	$(BIN)/python -m tests.console.shots

PYTHONS ?= $(PYTHON)
LOAD ?= 4

bare:  ## both commands of README.md without any optional program (PYTHONS="…" LOAD=4 BARE_ARGS=)
	$(PYTHON) tests/bare.py $(PYTHONS:%=--python %) --load $(LOAD) $(BARE_ARGS)

package: $(VENV)/run.stamp  ## build wheel and sdist into dist/, check and try them (PYTHONS="…")
	$(BIN)/python tests/package.py $(PYTHONS:%=--python %)

container: package  ## the steps of Containerfile in a root directory of their own (root, debootstrap)
	$(BIN)/python tests/container.py

clients: $(VENV)/test.stamp  ## programs and libraries of others against a daemon (npm, pip; CLIENTS="codex …")
	$(BIN)/python -m tests.foreign_clients $(CLIENTS)

lint: $(VENV)/test.stamp  ## ruff, the trio rules that ruff lacks (slow: only files they can apply to), names, words, circles
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	grep -rlZE --include="*.py" "\b(async|trio)\b|except( BaseException)?:" palyra \
	  | xargs -0 grep -lZE "\b(yield|except|finally|__aenter__)\b" \
	  | xargs -0 -P 2 -n 32 $(BIN)/flake8-async \
	  --enable=ASYNC101,ASYNC102,ASYNC103,ASYNC113,ASYNC120,ASYNC123,ASYNC900
	$(BIN)/python bench/house.py --check

types: $(VENV)/test.stamp  ## mypy --strict
	$(BIN)/mypy $(CHECKED)

check: lint types test  ## what a change must pass

cover: $(VENV)/test.stamp  ## the suite with branch coverage; core must reach 100 %
	$(PYTEST) $(PYTEST_ARGS) --cov --cov-report=
	$(BIN)/coverage report
	$(BIN)/coverage report --include='palyra/core/*' --fail-under=100

torture: $(VENV)/test.stamp  ## the slow suites: crashes, power cuts, soaks, all examples
	EXAMPLES=all $(PYTEST) -m "slow or hypothesis" --timeout=1800

CASES ?= 500
SEED ?= 0

damage: $(VENV)/test.stamp  ## one damage of a home a case (CASES=n, SEED=s)
	$(BIN)/python -m tests.faults.damage_home --cases $(CASES) --seed $(SEED)

SEEDS ?= 1000
START ?= 0
CAST ?= workers

simulate: $(VENV)/test.stamp  ## the whole daemon on virtual time (SEEDS=n, START=k, CAST=keepers)
	$(BIN)/python -m tests.simulate --seeds $(SEEDS) --start $(START) --cast $(CAST)

MUTANTS ?= 60
SEED ?= 0

mutants: $(VENV)/test.stamp  ## which changes of single places no test sees: an hour (MUTANTS=n, SEED=k)
	$(BIN)/python -m tests.mutants --count $(MUTANTS) --seed $(SEED) $(MUTANT_ARGS)

# A benchmark is a script in bench/ that prints its result as one line of JSON; names that
# begin with an underscore are shared code.
bench: $(VENV)/test.stamp  ## run every benchmark, print their JSON lines
	@for script in bench/[!_]*.py; do \
	  [ -e "$$script" ] || { echo "no benchmarks in bench/"; break; }; \
	  echo "# $$script" >&2; \
	  out=$$($(BIN)/python "$$script") && printf '%s\n' "$$out" | grep '^{' || { \
	    echo "$$script: failed or printed no JSON" >&2; exit 1; }; \
	done

# The site needs packages that nothing else does, so it has an environment of its own.  A link that
# leads nowhere is an error.
SITE := $(VENV)/docs

docs: $(SITE)/docs.stamp  ## build the site of the documents in build/site, links checked
	$(SITE)/bin/python -m sphinx --builder html --fail-on-warning --keep-going --nitpicky --quiet \
	  --conf-dir docs/site --doctree-dir .scratch/doctrees . build/site
	@echo "build/site/index.html"

$(SITE)/docs.stamp: $(VENV)/venv.stamp requirements/docs.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile \
	  --require-hashes -r requirements/docs.txt
	@touch $@

UV_COMPILE_ALONE := .scratch/lock/bin/uv pip compile --no-config --quiet --upgrade --universal \
  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command 'make lock'
UV_COMPILE := $(UV_COMPILE_ALONE) pyproject.toml requirements/build.in

lock:  ## pin the newest versions the ranges allow, for every interpreter at once
	$(PYTHON) -m venv .scratch/lock
	.scratch/lock/bin/python -m pip --disable-pip-version-check install --quiet 'uv>=0.9'
	$(UV_COMPILE) --extra vectors --extra wasm -o requirements/run.txt
	$(UV_COMPILE) --extra vectors --extra wasm --extra test -c requirements/run.txt -o requirements/test.txt
	$(UV_COMPILE_ALONE) requirements/browser.in -c requirements/test.txt -o requirements/browser.txt
	$(UV_COMPILE_ALONE) requirements/docs.in -o requirements/docs.txt
	echo mock-ai-api | $(UV_COMPILE_ALONE) -o requirements/mock.txt -

clean:  ## remove everything that was built or cached, the environment included
	rm -rf $(VENV) .scratch build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis htmlcov
	rm -f .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Palyra needs Python 3.11 or newer; '$(PYTHON)' is:" >&2; $(PYTHON) --version >&2; \
	  echo "Name a newer one:  make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  v=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "'$(PYTHON)' cannot make virtual environments: it has no ensurepip." >&2; \
	  echo "On Debian and Ubuntu:  apt install python$$v-venv" >&2; exit 1; }
	@echo "making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# pip is quiet, and may take minutes: say what comes.  Figures of the disk, from docs/evidence.md.
SAY_INSTALL = @echo "installing $$(grep -c '^[A-Za-z0-9].*==' $(1)) packages of $(1), checked by hash ($(2))"
SAY_SIZE = @echo "installed $$(du -sm $(VENV) | cut -f1) MB in $(VENV)"

# The checkout itself is installed without isolation: the build backend is pinned in run.txt.
INSTALL_SELF := @$(PIP) install --quiet --no-deps --no-build-isolation -e .

$(VENV)/run.stamp: $(VENV)/venv.stamp requirements/run.txt pyproject.toml
	$(call SAY_INSTALL,requirements/run.txt,300 MB; half a minute to a few)
	@$(PIP) install --quiet --require-hashes -r requirements/run.txt
	$(INSTALL_SELF)
	$(SAY_SIZE)
	@touch $@

# test.txt holds everything run.txt does, at the same versions.  The provider that our models are
# tried against pins other versions than we do, so it has an environment of its own.  Most of these
# modules are never imported: compiling them all would take a third of the installation.  Both files
# name every package, so there is nothing to resolve, and two processes can take half of them each.
MOCK := $(VENV)/mock
INSTALL_PINNED := install --quiet --no-compile --no-deps --require-hashes
$(VENV)/test.stamp: $(VENV)/venv.stamp requirements/test.txt requirements/mock.txt pyproject.toml
	$(call SAY_INSTALL,requirements/test.txt,500 MB; a minute to a few)
	$(call SAY_INSTALL,requirements/mock.txt,in $(MOCK))
	@awk '/^[A-Za-z0-9]/ { n++ } { print > ("$(VENV)/half" n % 2 ".txt") }' requirements/test.txt
	@{ $(PIP) $(INSTALL_PINNED) -r $(VENV)/half0.txt && $(PYTHON) -m venv --without-pip $(MOCK) \
	    && $(PIP) --python $(MOCK)/bin/python $(INSTALL_PINNED) -r requirements/mock.txt; } & half=$$!; \
	  $(PIP) $(INSTALL_PINNED) -r $(VENV)/half1.txt; main=$$?; wait $$half && exit $$main
	$(INSTALL_SELF)
	$(SAY_SIZE)
	@touch $@

$(VENV)/browser.stamp: $(VENV)/test.stamp requirements/browser.txt
	$(call SAY_INSTALL,requirements/browser.txt,170 MB)
	@$(PIP) $(INSTALL_PINNED) -r requirements/browser.txt
	@touch $@
