# Habits of the repository; `make` lists them. Every target makes the virtual environments it needs
# under .venvs/, one per dependency group of pyproject.toml, and keeps them until that file changes.

PYTHON ?= python3
V := .venvs
DEV := $(V)/dev/bin
SOURCES := src tests examples benchmarks tools
# What the oldest supported stack must pass too.
OLD_TESTS := $(wildcard tests/spaces tests/values tests/wire tests/transport tests/envs \
    tests/evals/test_any_gymnasium.py tests/checks/test_broken_envs.py tests/checks/test_broken_lanes.py)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint type bench format clean setup

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(V)/demo.stamp ## evaluate the scripted experts of Meta-World MT10 across processes
	$(V)/demo/bin/python examples/metaworld_mt10/evaluate.py $(ARGS)

test: setup ## set-up, then every check: lint, types, tests on the newest, the oldest and a bare stack
	tools/system_packages.sh
	$(MAKE) --no-print-directory lint type
	RLMESH_STRICT_SKIPS=1 RLMESH_REFERENCE_PYTHON=$(CURDIR)/$(V)/reference/bin/python \
	    $(DEV)/python -m pytest $(ARGS)
	$(if $(OLD_TESTS),RLMESH_STRICT_SKIPS=1 $(V)/old/bin/python -m pytest $(OLD_TESTS) $(ARGS))
	$(V)/bare/bin/python -W error tests/bare_stack.py

lint: $(V)/dev.stamp ## ruff check and format --check
	$(DEV)/ruff check $(SOURCES)
	$(DEV)/ruff format --check $(SOURCES)

type: $(V)/dev.stamp ## pyright, strict on src/
	$(DEV)/pyright --pythonpath $(DEV)/python

format: $(V)/dev.stamp ## ruff format and the safe fixes
	$(DEV)/ruff check --fix $(SOURCES)
	$(DEV)/ruff format $(SOURCES)

bench: $(V)/demo.stamp $(V)/dev.stamp $(V)/reference.stamp ## time steps, evaluations, served models and adapters against floors, bounds and peers; writes benchmarks/*.md
	$(V)/demo/bin/python benchmarks/run.py --reference-python $(V)/reference/bin/python $(ARGS)
	$(DEV)/python benchmarks/adapters.py --reference-python $(V)/reference/bin/python

setup: ## make the virtual environments of `make test`, two at a time
	@$(MAKE) --no-print-directory -j2 $(V)/dev.stamp $(V)/reference.stamp $(V)/old.stamp $(V)/bare.stamp

clean: ## remove the virtual environments, caches and build products
	rm -rf $(V) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The project itself goes into every environment but the reference's, which holds the published package.
$(V)/reference.stamp: PROJECT :=
$(V)/%.stamp: PROJECT := --editable .
# openpi's client wants numpy 1; the tests need only its codec and its WebsocketClientPolicy.
$(V)/dev.stamp: WITHOUT_DEPENDENCIES := openpi-client==0.1.2
$(V)/%.stamp: pyproject.toml
	test -x $(V)/$*/bin/python || $(PYTHON) -m venv $(V)/$*
	$(V)/$*/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(V)/$*/bin/python -m pip install --quiet --group $* $(PROJECT)
	$(if $(WITHOUT_DEPENDENCIES),$(V)/$*/bin/python -m pip install --quiet --no-deps $(WITHOUT_DEPENDENCIES))
	touch $@
