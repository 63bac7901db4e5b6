"""Write docs/licences.md: licences of the pretrained weights, and of every package in requirements/dev.lock.

`make licences` runs it in the environment of `make test`, where all of these packages are installed.
"""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """# Licences

The code is under the Apache licence 2.0: see LICENSE in the repository. `make licences` writes this page.

"""

DATA = """## Data

`chloroplast` is part of the sequence NC_000932.1 of RefSeq at NCBI (Sato et al., 1999; AP000423), the chloroplast
genome of *Arabidopsis thaliana*, taken from the tests of Biopython 1.88. NCBI places no restrictions on the use or
distribution of its sequences, and says that submitters may claim rights. `stdlib` is read from the Python that runs the
package; all other data are downloaded or brought by the user.

"""

PACKAGES = """## Packages

Every package of the environment of `make test`, on Linux, with the licence that its metadata names. The core depends on
those marked *core*. igraph, under the GPL, is used by a tutorial and its test; no part of the package imports it.
`make sbom` writes the same as CycloneDX, with versions.

| package | licence |
|---|---|
"""


def licence(package: Distribution) -> str:
    """The licence in the metadata of a package: an SPDX expression, its classifiers, or the first line of its text."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License")]
    named = [name for name in classifiers if name != "OSI Approved"]
    first = (about.get("License") or "").strip().partition("\n")[0]
    return ", ".join(named) or first.replace("UNKNOWN", "") or "not in the metadata"


def core() -> set[str]:
    """Names of the packages that the core depends on directly."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("\ndependencies = [")[2].partition("\n]")[0]
    return {name.replace("_", "-") for name in re.findall(r'^    "([\w-]+)', block, re.M)}


def page() -> str:
    """The page, from the packages that are installed."""
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/dev.lock").read_text(encoding="utf-8"), re.M)
    rows = []
    for name in sorted([*locked, "torch"]):
        try:
            text = licence(distribution(name)).replace("|", "/")
        except PackageNotFoundError:  # of another system
            continue
        rows.append(f"| {name}{' (*core*)' if name in core() else ''} | {text} |\n")
    weights = (ROOT / "src/blackout/pretrained/README.md").read_text(encoding="utf-8")
    return HEAD + weights.replace("# ", "## ", 1) + "\n" + DATA + PACKAGES + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
