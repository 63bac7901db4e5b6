"""Workflows, Read the Docs, issue forms and .ci/run: what they call exists, actions are pinned, rights minimal."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from blackout.cli import app

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def commands() -> list[tuple[str, str]]:
    """(file, line of a shell) of everything that is run elsewhere."""
    found = [
        (file.name, line) for file in WORKFLOWS for step in steps(file) for line in step.get("run", "").splitlines()
    ]
    docs = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    found += [(".readthedocs.yaml", line) for line in docs["build"]["jobs"]["install"]]
    lines = (ROOT / ".ci/run").read_text().splitlines()
    return found + [(".ci/run", line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(("file", "line"), commands(), ids=lambda value: value if len(value) < 60 else value[:60])
def test_commands_exist(file: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = [word for word in words if not re.match(r"[A-Z_]+=", word)]  # variables before a command
    match words:
        case ["make", *targets]:
            assert targets
            assert set(targets) <= TARGETS
        case ["blackout", name, *options]:
            command = get_command(app).commands[name]  # type: ignore[attr-defined]
            command.make_context(name, options)
        case ["python", "-m", "pytest", *files]:
            assert files
            assert [name for name in files if not (ROOT / name).is_file()] == []
        case ["python", "-m", "pip", "install", *rest]:
            for word in rest:
                if found := re.fullmatch(r"\.\[([\w,]+)\]", word):
                    assert set(found[1].split(",")) <= set(PROJECT["optional-dependencies"])
                if word.startswith(("requirements/", "constraints")):
                    assert (ROOT / word).is_file()
        case ["test" | "set" | "cd", *_]:
            pass
        case _:
            raise AssertionError(f"{file}: {line!r} is not checked")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_minimal(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in content["jobs"].items() if "permissions" in job}
    assert more == ({"publish": {"id-token": "write"}} if workflow.stem == "release" else {})
    for line in re.findall(r"uses: (.+)", workflow.read_text()):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line
    for step in steps(workflow):
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_the_matrix_has_every_python_and_the_oldest_torch() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    pythons = jobs["everything"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == PROJECT["requires-python"]
    (torch,) = (line for line in PROJECT["dependencies"] if line.startswith("torch>="))
    wanted = [entry["torch"] for entry in jobs["versions"]["strategy"]["matrix"]["include"]]
    assert f"torch=={torch.removeprefix('torch>=')}.*" in wanted
    assert "torch" in wanted


@pytest.mark.parametrize("file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_issue_forms_have_what_github_requires(file: Path) -> None:
    form = yaml.safe_load(file.read_text())
    if file.stem == "config":
        assert set(form) == {"blank_issues_enabled"}
        return
    assert form["name"]
    assert form["description"]
    for item in form["body"]:
        assert item["type"] in ("checkboxes", "dropdown", "input", "markdown", "textarea")
        assert item["attributes"]["label"]
