# Every target sets itself up: it makes .venv in this checkout and installs what it needs, once.
# Needed beforehand: Python 3.11 or newer (another interpreter: make PYTHON=python3.12 test), git and make.

PYTHON ?= python3
# An interpreter that was named is the one that is used; otherwise newer ones stand in for an old python3.
ifeq ($(origin PYTHON),file)
INTERPRETERS := $(PYTHON) python3.14 python3.13 python3.12 python3.11
else
INTERPRETERS := $(PYTHON)
endif
VENV := .venv
PY := $(VENV)/bin/python

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test pytest test-all test-oldest coverage mutate lint types docs dist bench scaling power calibrate given designs soak fuzz clean \
	distclean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'

demo: $(VENV)/.installed-plot  ## see the package at work on data that comes with scikit-learn
	@$(PY) -m kernsift demo

# mypy uses one core for a while, so the tests start beside it; nothing starts after lint has failed.
test:  ## lint, types, then all tests and doctests
	@$(MAKE) -s -j2 lint types pytest

# SCIPY_ARRAY_API lets scikit-learn run its array API checks on the selectors. KERNSIFT_REQUIRE names what the extra "test"
# brings: a test that is skipped for want of one of them fails.
pytest: export KERNSIFT_REQUIRE := $(KERNSIFT_REQUIRE),matplotlib,jinja2,pandas,pyarrow,zarr,h5py,dask,numba,selenium,strict
# The tests start many programs, which would compile all modules again unless they are kept.
pytest: export PYTHONDONTWRITEBYTECODE :=
pytest: $(VENV)/.installed-test
	@SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal -q -rs

# PyPI's build for Linux brings gigabytes of CUDA along, so `make test` does without torch; for a build without it set
# PIP_INDEX_URL to an index that has one. TORCH= leaves it out.
TORCH ?= torch==2.13.0
comma := ,
test-all: $(VENV)/.installed-test  ## the same with torch, which it installs: every estimator on torch's arrays, too
	@$(PY) -c 'import torch' 2>/dev/null || $(PY) -m pip install -qq '$(TORCH)'
	@KERNSIFT_REQUIRE='$(KERNSIFT_REQUIRE)$(if $(TORCH),$(comma)torch)' $(MAKE) -s test

lint: $(VENV)/.installed-test  ## ruff: rules and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: $(VENV)/.installed-test  ## mypy on the package
	@$(PY) -m mypy

test-oldest:  ## the quick tests with the oldest versions of every dependency, in .venv-oldest
	@rm -rf .venv-oldest
	@$(MAKE) -s VENV=.venv-oldest .venv-oldest/bin/python
	@.venv-oldest/bin/python -m pip install -qq --requirement tests/oldest.txt
	@.venv-oldest/bin/python -m pip install -qq --no-deps --editable .
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n auto -q -m 'not slow'

coverage: $(VENV)/.installed-test  ## all tests, and which lines and branches they reach; fails below 95% of lines
	@rm -f .coverage .coverage.*
	@SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n auto -q --cov --cov-report=
	@$(PY) -m coverage report --show-missing --skip-covered
	@$(PY) -m coverage json -q -o .coverage.json
	@$(PY) benchmarks/coverage_share.py .coverage.json 95

# mutmut changes pytest's insides, and knows those of some versions only: it has an environment of its own.
mutate:  ## break the statistics in some 400 ways and see which the tests notice; MUTATE=--all for every way
	@$(MAKE) -s VENV=.venv-mutate .venv-mutate/.installed-mutate
	@.venv-mutate/bin/python -m pip install -qq 'pytest<9.1'
	@.venv-mutate/bin/python benchmarks/mutate.py $(MUTATE)

docs: $(VENV)/.installed-docs  ## build the documentation, run every example in it: docs/_build/html
	@rm -rf docs/_build docs/gallery docs/api/generated
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo "open docs/_build/html/index.html"

dist: $(PY)  ## build wheel and sdist, and try both in empty environments
	@rm -rf dist
	@$(PY) -m pip install -qq 'build>=1.2'
	@$(PY) -m build --outdir dist . >/dev/null
	@sh tests/install.sh $(PY) dist/*.whl
	@sh tests/install.sh $(PY) dist/*.tar.gz

bench: $(VENV)/.installed-bench  ## time and memory, against others and against the last run on record
	@$(PY) benchmarks/bench.py --growth

scaling: $(VENV)/.installed-test  ## what tables in files cost, fitted and checked on a larger one: docs/scaling.md; 6 GB of disk
	@$(PY) benchmarks/scaling.py build/scaling --record --page docs/scaling.md

power: $(VENV)/.installed-test $(VENV)/.installed-bench  ## power and regret against other tests: docs/power.md
	@$(PY) benchmarks/power.py

designs: $(VENV)/.installed-test  ## strata, pairs and units: levels, power and cost: docs/designs.md
	@$(PY) benchmarks/designs.py

calibrate: $(VENV)/.installed-test  ## levels of p-values and coverage of intervals: docs/calibration.md
	@$(PY) benchmarks/calibrate.py

given: $(VENV)/.installed-test $(VENV)/.installed-bench  ## conditional tests, survival and distinct features: docs/given.md
	@$(PY) benchmarks/given.py

soak: $(VENV)/.installed-test  ## an hour of calls without growth, and fifty kills
	@$(PY) benchmarks/soak.py --minutes 60
	@OMP_NUM_THREADS=1 $(PY) -m pytest tests/test_faults.py -q -m nightly

fuzz: $(VENV)/.installed-test  ## broken files by the hundred thousand for the file readers, some minutes
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PY) tests/fuzz_readers.py

clean:  ## remove caches and build output
	@rm -rf build dist docs/_build docs/gallery docs/api/generated
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .coverage .coverage.* mutants
	@find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## remove .venv too
	@rm -rf $(VENV) .venv-oldest .venv-mutate

# One stamp for each set of extras; it is older than pyproject.toml exactly when the installation may be out of date.
$(VENV)/.installed-%: pyproject.toml $(PY)
	@echo "installing kernsift[$*] into $(VENV) ..."
	@$(PY) -m pip install -qq --editable '.[$*]'
	@touch $@

# `ensurepip` is asked for because some systems ship `venv` without it, and the environment would come out without pip.
$(PY):
	@for candidate in $(INTERPRETERS); do \
		if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			rm -f $(VENV)/bin/python*; \
			exec "$$candidate" -m venv $(VENV); \
		fi; \
	done; \
	echo "kernsift needs Python 3.11 or newer with its venv module, and found none as $(INTERPRETERS):" \
		"install one, or say where it is: make PYTHON=/path/to/python3" >&2; \
	exit 1
