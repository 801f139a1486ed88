# Everything a fresh machine needs is set up by the target that needs it: a virtual environment from the lock file, and
# for the tests a Kubernetes control plane built once into a cache outside this tree.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test unit control-plane lint format bench simulate clean

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

demo: $(STAMP) ## an embedded cluster, a rollout, an abandonment, and the two promises checked
	@$(BIN)/ome-manager demo $(ARGS)

test: $(STAMP) ## unit, simulation and control-plane tests; nothing is skipped that should run
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m pytest $(ARGS)

unit: $(STAMP) ## the pure core and the embedded cluster only
	$(BIN)/python -m pytest tests/unit tests/simulation $(ARGS)

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measurements; ONLY=name runs one of them
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

simulate: $(STAMP) ## random histories of the whole manager; SEEDS=n runs so many, SEED=n replays one
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS))

clean:
	rm -rf $(VENV) build dist *.egg-info
