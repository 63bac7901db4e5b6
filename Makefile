# Two commands do everything, from a clone with nothing but Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TOOLS := build/tools
OUT ?= demo
SEED ?= 0
MINUTES ?= 5

.PHONY: demo test test-slow lint types contracts unit browser docs wheel attack bench results figures dist lock licences sbom audit clean
.DELETE_ON_ERROR:

.venv/installed: pyproject.toml constraints.txt requirements/dev.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes --no-deps --only-binary :all: --requirement requirements/dev.lock
	$(PIP) --constraint constraints.txt torch  # the wheel that pip finds for this machine; CPU or CUDA
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $@

demo: .venv/installed
	$(BIN)/blackout sample cifar10 --class each --num 30 --steps 16 --guidance 2 --out $(OUT)/images.png \
		--trajectory $(OUT)/trajectory.png

test: lint contracts  # tests/test_docs.py builds the site; mypy uses one core only
	$(MAKE) --jobs 2 types unit wheel
	$(MAKE) attack CASES=40

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

contracts: .venv/installed
	$(BIN)/lint-imports

browser: .venv/installed  # a Chromium for the tests of the page, which are skipped without one
	tests/get-chromium

unit: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow

docs: .venv/installed
	$(BIN)/python -m sphinx -q -E -W --keep-going -n -d build/doctrees docs build/docs

wheel: .venv/installed
	rm -rf build/wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel > /dev/null
	$(PIP) --no-deps --target build/wheel/installed build/wheel/*.whl
	cd build/wheel/installed/blackout && ls py.typed results/cifar10-heads.json web/static/index.html \
		evaluation/templates/report.html > /dev/null  # and from another folder:
	cd build/wheel && PYTHONPATH=installed ../../$(BIN)/python -c 'import blackout; assert "installed" in blackout.__file__'
	cd build/wheel && PYTHONPATH=installed ../../$(BIN)/python -m blackout sample seven-segment --num 2 --steps 2 --out x.png

attack: .venv/installed  # docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python -m attack --seed $(SEED) --minutes $(MINUTES) $(if $(CASES),--cases $(CASES))

bench: .venv/installed
	$(BIN)/python -m benchmarks processes
	$(BIN)/python -m benchmarks small

results: .venv/installed
	$(BIN)/python results/render.py

figures: .venv/installed  # and those of docs/figures.md
	$(BIN)/blackout figures --out build/figures
	for file in build/figures/*.png; do cp $$file docs/pictures/figures-$${file##*/}; done

lock: $(TOOLS)/installed  # hashes of every wheel of the versions in constraints.txt; torch: see requirements/no-torch.txt
	printf 'networkx\nsympy\n' | $(TOOLS)/bin/uv pip compile pyproject.toml - --extra dev --constraint constraints.txt \
		--override requirements/no-torch.txt --no-emit-package torch --universal --python-version 3.11.5 \
		--generate-hashes --no-annotate --no-header --quiet --output-file requirements/dev.lock
	$(TOOLS)/bin/uv pip compile requirements/tools.txt --constraint constraints.txt --universal --python-version 3.11.5 \
		--generate-hashes --no-annotate --no-header --quiet --output-file requirements/tools.lock

dist: $(TOOLS)/installed  # the wheel and the source, as they are released
	rm -rf dist
	$(TOOLS)/bin/python -m build --no-isolation --outdir dist

licences: .venv/installed  # docs/licences.md, from the packages that are installed
	$(BIN)/python docs/_ext/licences.py > docs/licences.md

sbom: .venv/installed $(TOOLS)/installed  # CycloneDX: every package of the environment with version and licence
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o build/sbom.json $(BIN)/python

audit: $(TOOLS)/installed  # known weaknesses of the locked versions; asks PyPI
	$(TOOLS)/bin/pip-audit --strict --require-hashes --disable-pip --requirement requirements/dev.lock

$(TOOLS)/installed: requirements/tools.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		--only-binary :all: --requirement $<
	touch $@

clean:
	rm -rf .venv build demo dist
