import ast
import inspect
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy
import pytest
from pytest_socket import SocketConnectBlockedError

import blackout as bo
import processes
from blackout.loss import Loss, RateLoss
from blackout.process import MarkovProcess
from blackout.sampling import Sampler

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"Eq\. \(\d+\)|`eq:\w+`|Algorithm \d|Appendix [A-H]|Table \d|[Nn]ot in the paper")
PUBLIC = [getattr(bo, name) for name in bo.__all__]
MATHEMATICS = [
    thing for thing in PUBLIC if inspect.isclass(thing) and issubclass(thing, MarkovProcess | Sampler | Loss | RateLoss)
]


def test_the_public_names_of_the_theory_are_there() -> None:
    names = (
        "PureDeath BirthDeath FiniteState Absorbing Uniform DiscretizedGaussian Chain ObservationTimes "
        "InstantaneousLoss FiniteTimeLoss LikelihoodLoss RateLoss BinomialBridge TauLeaping Exact evidence_bound"
    )
    assert set(names.split()) <= set(bo.__all__)


@pytest.mark.parametrize("thing", MATHEMATICS, ids=lambda thing: thing.__name__)
def test_every_process_loss_and_sampler_names_its_equation(thing: type) -> None:
    if thing not in (Sampler,):
        assert NAMED.search(thing.__doc__ or ""), f"{thing.__name__} names neither an equation nor 'not in the paper'"


def _equations() -> list[list[str]]:
    lines = (ROOT / "docs/equations.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in rows if row[1] != "code"]


LABELS = {
    "alg": "Ginference Gtraining inference training",
    "app": "asymptotics binomialBridge generalAlgo generalization likelihood reverseTime schedule",
    "eq": (
        "KramersMoyalForward alice binomialBridge bob cBayes cbackward cforward cforward2 charlie creverse "
        "creverse-general cts-score david dbackward dforward2 dis-score fowardSol juliet lossFinite "
        "lossInstantaneous observationTimes pureDeath quebec rRates reverseRate romeo xavier yankees"
    ),
    "fig": (
        "celebA grid-f-b grid-f-p grid-i-b grid-i-p imageDegradation imageDegradation_noScaling "
        "imageGeneration imageGeneration_noScaling mnist-generation mnist-grid observationTimes paths"
    ),
    "sec": (
        "acknowledgements asymptotic discussion forwardBackward generation likelihood method notation "
        "numerics pureDeathProcess reverse"
    ),
    "tab": "cifar10_SOTA",
    "table": "not-so-unique unique",
}
"""All labels of the paper's source, by kind."""


def test_every_label_of_the_paper_is_on_the_page() -> None:
    labels = [f"{kind}:{name}" for kind, names in LABELS.items() for name in names.split()]
    page = (ROOT / "docs/equations.md").read_text()
    assert len(labels) == 66
    assert [label for label in labels if f"`{label}`" not in page] == []
    assert set(re.findall(rf"`((?:{'|'.join(LABELS)}):[\w-]+)`", page)) == set(labels)


def test_every_numbered_equation_and_algorithm_has_a_row() -> None:
    first = " ".join(row[0] for row in _equations())
    for label in [f"({n})" for n in range(1, 13)] + [f"Algorithm {n}" for n in range(1, 5)]:
        assert label in first, label


@pytest.mark.parametrize("row", _equations(), ids=lambda row: row[0])
def test_equations_link_to_code_and_tests(row: list[str]) -> None:
    _, symbols, tests = row
    for symbol in re.findall(r"`([^`]+)`", symbols):
        module, _, attribute = symbol.partition(":")
        thing = __import__(f"blackout.{module}", fromlist=["_"])
        for part in attribute.split("."):
            thing = getattr(thing, part)
    found = re.findall(r"`(test_\w+\.py)::(\w+)`", tests)
    assert found, f"{row[0]} names no test"
    for file, name in found:
        functions = [
            n.name for n in ast.parse((ROOT / "tests" / file).read_text()).body if isinstance(n, ast.FunctionDef)
        ]
        assert name in functions, f"{file} has no {name}"


def test_import_is_light_and_quick() -> None:
    program = (
        "import time, torch\nstart = time.perf_counter()\nimport blackout\nprint(time.perf_counter() - start)\n"
        "import sys\nprint(*sys.modules)"
    )
    best, modules = 10.0, set()
    for _ in range(2):
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        seconds, names = out.splitlines()
        best, modules = min(best, float(seconds)), set(names.split())
    assert best < 0.5
    assert not modules & {"matplotlib", "gradio", "anndata", "scipy", "typer", "pandas", "torchvision", "PIL"}


def test_the_changelog_has_this_version() -> None:
    assert f"## {bo.__version__} - " in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for requirement in wanted:
        name = re.split(r"[\[><=;]", requirement)[0].lower()
        assert name in pinned or name == project["name"], f"{name} has no exact version in constraints.txt"


def _locked(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package in a lock file."""
    text = (ROOT / "requirements" / name).read_text()
    blocks = re.split(r"^(?=\w)", text, flags=re.M)[1:]
    entries = [(block.partition("==")[0], block.partition("==")[2].split()[0], block) for block in blocks]
    return {package: (version, len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", b))) for package, version, b in entries}


def test_every_package_of_the_lock_files_has_hashes() -> None:
    for name in ("dev.lock", "tools.lock"):
        locked = _locked(name)
        assert len(locked) > 40
        assert [package for package, (_, hashes) in locked.items() if not hashes] == []


def test_lock_and_constraints_have_the_same_versions() -> None:
    """After a change of constraints.txt or of the dependencies: `make lock`."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {name.lower().replace("_", "-"): version for name, version in (line.split("==") for line in lines)}
    locked = {name: version for name, (version, _) in _locked("dev.lock").items()}
    assert {name: pinned[name] for name in locked if name in pinned} == {
        name: locked[name] for name in locked if name in pinned
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (own,) = (line for line in extras["dev"] if line.startswith("blackout-diffusion["))
    groups = ["dev", *own.partition("[")[2].rstrip("]").split(",")]
    wanted = {re.split(r"[\[><=;]", line)[0].lower().replace("_", "-") for group in groups for line in extras[group]}
    assert wanted - set(locked) == {"blackout-diffusion"}
    assert "torch" not in locked, "its wheel depends on the machine"


@pytest.mark.skipif(sys.platform != "linux", reason="the page lists the packages of Linux")
def test_the_page_of_licences_is_up_to_date() -> None:
    """Otherwise: `make licences`."""
    sys.path.insert(0, str(ROOT / "docs/_ext"))
    from licences import page

    assert (ROOT / "docs/licences.md").read_text() == page()


def test_every_pretrained_model_has_a_licence() -> None:
    text = (ROOT / "src/blackout/pretrained/README.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", text, re.M) == bo.pretrained()


# Each is one program: test_tutorials.py runs them, and cells.md is run below.
TUTORIALS = ("cells.md", "evaluation.md", "extending.md", "images.md", "sequences.md", "several-gpus.md")


def _examples() -> list[tuple[str, str]]:
    found = []
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if file.name in TUTORIALS:
            continue
        for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", file.read_text(), re.M | re.S), 1):
            found.append((f"{file.name}-{number}", code))
    return found


@pytest.mark.parametrize(("name", "code"), _examples(), ids=lambda value: value if len(value) < 40 else "")
def test_documentation_examples_run(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {})


def test_the_tutorial_on_cells_runs(tmp_path: Path) -> None:
    """All blocks of docs/cells.md as one program, with its simulated cells, in a Python process of its own.

    One thread: those of scanpy and torch wait actively for each other when other tests run at the same time.
    """
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/cells.md").read_text(), re.M | re.S))
    (tmp_path / "cells.py").write_text(code)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT / "src")}
    environment.pop("BLACKOUT_CELLS", None)
    done = processes.run(tmp_path / "cells.py", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cells-umap.png").stat().st_size > 0
    assert (tmp_path / "cells-markers.png").stat().st_size > 0


def test_readme_commands_exist() -> None:
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target}"
    assert re.search(r"`?make demo", text)
    assert re.search(r"`?make test", text)


def example(file: str, *words: object) -> str:
    done = processes.run(ROOT / "examples" / file, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_run(tmp_path: Path) -> None:
    out = example("sample_letters.py", "--out", tmp_path, "--num", "2", "--steps", "30")
    assert "are among the 1008 images of the data" in out
    assert (tmp_path / "trajectory.png").stat().st_size > 0


def test_the_example_of_exchange_runs(tmp_path: Path) -> None:
    out = example("exchange.py", "--out", tmp_path, "--num", "6", "--steps", "3", "--side", "2")
    assert "of 6 samples are bars" in out
    assert (tmp_path / "exchange.png").stat().st_size > 0


def test_the_example_that_divides_cells_runs(tmp_path: Path) -> None:
    numpy.save(tmp_path / "cells.npy", numpy.random.default_rng(0).poisson(1.0, (40, 9)))
    out = example("variable_genes.py", tmp_path / "cells.npy", "--genes", "4", "--out", tmp_path)
    assert "train.h5ad: 36 cells, 4 genes" in out
    assert "test.h5ad: 4 cells, 4 genes" in out


def test_every_image_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for picture in (ROOT / "docs/pictures").iterdir():
        assert f"pictures/{picture.name}" in pages


def test_tests_connect_to_this_machine_only() -> None:
    """In this process by any means, in processes that tests start by HTTP. 192.0.2.1 is reserved for documentation."""
    with pytest.warns(UserWarning, match='host "192.0.2.1"'), pytest.raises(SocketConnectBlockedError):
        socket.create_connection(("192.0.2.1", 80), timeout=0.1)
    code = "import urllib.request; urllib.request.urlopen('http://192.0.2.1/', timeout=5)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Connection refused" in done.stderr, "by the proxy that does not exist, at once"
