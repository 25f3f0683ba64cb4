# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: most never are, and all of them would take a minute.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint requirements.lock
OUT ?= demo
SEEDS := 0 1 2
SCENARIO ?= cartpole
SUFFIX := $(if $(filter-out cartpole,$(SCENARIO)),-$(SCENARIO))

.PHONY: demo test check format page results parity soak soak-kills fuzz clean

demo: $(VENV)/.installed  ## learn the return laws of FrozenLake, compare them with the exact ones, draw both
	$(BIN)/nfdrl paper frozenlake --seed 0 --out $(OUT)

test: $(VENV)/.installed-test  ## the whole test suite, on two cores
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(VENV)/.installed-test  ## lint, format, types, direction of imports, every test can be imported
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --collect-only -qq

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

page: $(VENV)/.installed  ## the page of `nfdrl page` and `nfdrl watch`, from web/ (needs Node 20; the result is committed, users need none)
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m nfdrl.viewer.messages > src/nfdrl/viewer/static/schema.json
	cd web && npm run types && npm run check && npm run build

results: $(VENV)/.installed-test  ## the paper's figures with three seeds, and the speed of the losses (about an hour)
	for seed in $(SEEDS); do $(BIN)/nfdrl paper all --seed $$seed --out results/paper/seed-$$seed || exit 1; done
	$(BIN)/nfdrl bench losses --out results/bench/losses

parity: ## our losses against Tianshou's released code, which needs another Gymnasium and so an environment of its own
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet torch==$(shell sed -n 's/^torch==//p' requirements.lock)
	.venv-parity/bin/python -m pip install --quiet tianshou pytest safetensors tyro rich matplotlib typing-extensions
	.venv-parity/bin/python -m pip install --quiet --no-deps --editable .
	.venv-parity/bin/python -m pytest -q -c /dev/null --rootdir . parity

soak: $(VENV)/.installed-test  ## half an hour of training with checkpoints: memory, threads and open files must not grow
	$(BIN)/python soak/steady.py --minutes 30 --scenario $(SCENARIO) --out results/soak/steady$(SUFFIX).json

soak-kills: $(VENV)/.installed-test  ## a run killed 36 times against one that is not: the same bits
	$(BIN)/python soak/kills.py --scenario $(SCENARIO) --out results/soak/kills$(SUFFIX).json

fuzz: $(VENV)/.installed-test  ## 100,000 damaged checkpoints, run settings and --set words
	NFDRL_FUZZ=100000 $(BIN)/python -m pytest -q tests/test_fuzz.py -s

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable ".[test,dev]"
	touch $@

clean:
	rm -rf $(VENV) web/node_modules demo out .pytest_cache .mypy_cache .ruff_cache .hypothesis
