# Two commands do everything, from a clone with nothing but Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
OUT ?= demo
SEED ?= 0
MINUTES ?= 5

.PHONY: demo test test-slow lint types contracts unit docs wheel attack bench results figures clean
.DELETE_ON_ERROR:

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: .venv/installed
	$(BIN)/blackout sample mnist-binary --num 64 --steps 64 --out $(OUT)/digits.png --trajectory $(OUT)/trajectory.png

test: lint contracts  # tests/test_docs.py builds the site; mypy uses one core only
	$(MAKE) --jobs 2 types unit wheel
	$(MAKE) attack MINUTES=1

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

contracts: .venv/installed
	$(BIN)/lint-imports

unit: .venv/installed
	tests/get-chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow

docs: .venv/installed
	$(BIN)/python -m sphinx -q -E -W --keep-going -n -d build/doctrees docs build/docs

wheel: .venv/installed
	rm -rf build/wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel > /dev/null
	$(BIN)/python -m zipfile --list build/wheel/*.whl | grep blackout/py.typed > /dev/null
	$(BIN)/python -m zipfile --list build/wheel/*.whl | grep blackout/results/cifar10-heads.json > /dev/null
	$(BIN)/python -m zipfile --list build/wheel/*.whl | grep blackout/web/static/index.html > /dev/null
	$(BIN)/python -m zipfile --list build/wheel/*.whl | grep blackout/evaluation/templates/ > /dev/null

attack: .venv/installed  # docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python -m attack --seed $(SEED) --minutes $(MINUTES)

bench: .venv/installed
	$(BIN)/python -m benchmarks processes
	$(BIN)/python -m benchmarks small

results: .venv/installed
	$(BIN)/python results/render.py

figures: .venv/installed  # and those of docs/figures.md
	$(BIN)/blackout figures --out build/figures
	for file in build/figures/*.png; do cp $$file docs/pictures/figures-$${file##*/}; done

clean:
	rm -rf .venv build demo
