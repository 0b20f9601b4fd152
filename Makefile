# Every target makes the environment in .venv first, where it is missing or older than pyproject.toml.
VENV := .venv
BIN := $(VENV)/bin
# The results of a run; git ignores the folder.
RESULTS := results

PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal
# Tests lie in the folders of what they test: make test ROOM=sampler/moves.
ROOM :=
TESTS = $(if $(ROOM),tests/$(ROOM))
FAST := $(addprefix tests/,tables/test_bad_input.py house/test_import.py house/test_layers.py sampler/state \
	integration/runs/test_thinned.py) pymc_dpgmm
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

.PHONY: env demo check test test-slow test-zarr lint bench bench-posterior bench-many-rows bench-papers bench-split-merge bench-truncated bench-variational budgets compare calibration intervals latent-calibration docs readme dist clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && rm -rf $(VENV) && "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: env
	$(BIN)/python examples/old_faithful.py $(RESULTS)

# Lint and types are checked beside the tests, which begin with what only one core can do, and are told of at the end.
# The seconds that all of it took are one of the figures of `make budgets`.
test: env
	@mkdir -p $(RESULTS)
	begin=$$(date +%s); { $(LINT); } > $(RESULTS)/lint 2>&1 & \
	$(PYTEST) $(TESTS) && tests=passed || tests=failed; \
	wait $$! && lint=passed || lint=failed; \
	cat $(RESULTS)/lint; echo "tests $$tests, lint and types $$lint"; \
	[ $$tests$$lint = passedpassed ] && { [ -n "$(ROOM)" ] || echo $$(($$(date +%s) - begin)) > $(RESULTS)/test_seconds; }

# Before a commit: lint, types, examples in docstrings, and the tests that compile little. Under a minute, once they are
# compiled.
check: env
	$(LINT)
	$(PYTEST) $(FAST)

# What takes longest is told at the end.
test-slow: env
	$(PYTEST) -m slow --durations=80 $(TESTS)
	$(PYTEST) -m "interpreted and not slow" --compile-graphs $(TESTS)

# An environment with the versions that PyMC's ZarrTrace works with.
test-zarr:
	@python=$$(PYTHON="$(PYTHON)" tools/find-python) && "$$python" -m venv .venv-zarr
	.venv-zarr/bin/python -m pip install --quiet --editable ".[demo]" pytest "zarr<3" "numcodecs<0.15" "xarray<2025.7"
	.venv-zarr/bin/python -m pytest -W default tests/house/test_zarr.py

lint: env
	$(LINT)

bench: env
	$(BIN)/python benchmarks/run.py $(RESULTS)
	$(BIN)/python -W ignore benchmarks/families.py $(RESULTS)

# Everything that is done after sampling, at three numbers of rows.
bench-posterior: env
	$(BIN)/python benchmarks/posterior.py $(RESULTS)

# Figures that matter beside their limits; fails if a limit is exceeded.
budgets: env
	$(BIN)/python -W ignore benchmarks/budgets.py --folder $(RESULTS)

# The same of an older checkout beside this one: make compare BEFORE=/path/to/checkout
compare: env
	$(BIN)/python -W ignore benchmarks/compare.py --before $(BEFORE) --folder $(RESULTS)

calibration: env
	$(BIN)/python benchmarks/calibration.py $(RESULTS)

# How often intervals hold what data sets were drawn from: half an hour on two cores.
intervals: env
	$(BIN)/python -W ignore benchmarks/intervals.py $(RESULTS)

# The number of clusters of latent rows, beside enumeration too: an hour on two cores.
latent-calibration: env
	$(BIN)/python benchmarks/latent_calibration.py $(RESULTS)

# The files of a release in dist/, checked, installed into empty environments, and README's example run from there.
dist: env
	rm -rf dist build
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tools/check-dist dist

# The same model truncated, all of it sampled by NUTS.
bench-truncated: env
	$(BIN)/python benchmarks/truncated.py $(RESULTS)

# Variational inference beside scikit-learn, and beside the exact sampler.
bench-variational: env
	$(BIN)/python -W ignore benchmarks/variational.py $(RESULTS)
	$(BIN)/python -W ignore benchmarks/variational.py --held-out

# Draws of the labels of 10,000 to 10,000,000 rows, on one thread and two.
bench-many-rows: env
	$(BIN)/python benchmarks/many_rows.py --folder $(RESULTS)

# MNIST is an .npz file with the images' principal components X and their digits; without it that part is skipped.
bench-split-merge: env
	$(BIN)/python -W ignore benchmarks/split_merge.py --folder $(RESULTS) $(if $(MNIST),--mnist $(MNIST))

# The headline of each source document beside ours; tables, and the pictures of docs/papers.md. MNIST as above.
bench-papers: env
	$(BIN)/python -W ignore benchmarks/papers.py $(if $(MNIST),--mnist $(MNIST))

# The documentation site in results/site. Pages are executed if they have changed; .cache/docs has their outputs.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -b html -W --keep-going -n docs $(RESULTS)/site
	@echo "open $(RESULTS)/site/index.html, or serve it: $(BIN)/python -m http.server -d $(RESULTS)/site"

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

# The example of the README: runs it, writes what it prints into the README, and its picture to docs/old_faithful.png.
readme: env
	$(BIN)/python docs/readme.py

clean:
	rm -rf $(VENV) .venv-zarr $(RESULTS) .cache dist build docs/reference/generated docs/notebooks
	find pymc_dpgmm -name '*.nb[ci]' -delete
