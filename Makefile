# Every target makes the environment in .venv first, where it is missing or older than pyproject.toml.
VENV := .venv
BIN := $(VENV)/bin
# The results of a run; git ignores the folder.
RESULTS := results

.PHONY: env demo test test-slow lint notebooks bench clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && rm -rf $(VENV) && "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: env
	$(BIN)/python examples/old_faithful.py $(RESULTS)

test: env lint
	$(BIN)/python -m pytest

test-slow: env
	$(BIN)/python -m pytest -m slow

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: env
	$(BIN)/python benchmarks/run.py $(RESULTS)

clean:
	rm -rf $(VENV) $(RESULTS) .cache
