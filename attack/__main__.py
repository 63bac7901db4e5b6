"""`python -m attack [KIND ...] --seed N --minutes M`: attack the package and count what falls."""

import datetime
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from attack import child
from attack.findings import Tally
from attack.world import World

KINDS = {
    "kills": ("attack.interrupted", "training, sampling, evaluation and saving, killed and resumed"),
    "commands": ("attack.commands", "random command lines"),
    "files": ("attack.files", "damaged files"),
    "api": ("attack.calls", "random calls of the Python API"),
    "web": ("attack.web", "hostile requests to the server of the page"),
    "soak": ("attack.soak", "2,000 sampling calls with flat memory"),
}
app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="KIND", help=f"world, {', '.join(KINDS)}", show_default="all")
    ] = None,
    seed: Annotated[int, typer.Option(help="the cases depend on it alone")] = 0,
    minutes: Annotated[float, typer.Option(help="time for all kinds together")] = 5.0,
    cases: Annotated[int | None, typer.Option(help="most cases of each kind", show_default="no limit")] = None,
    case: Annotated[int | None, typer.Option(help="run the case of this number alone", show_default="all")] = None,
    record: Annotated[
        Path | None, typer.Option(help="JSON file for the counts, as in results/", show_default="none")
    ] = None,
) -> None:
    """Attack the package. Prints counts, and the shortest line that shows each failure again; status 1 if there is one.

    The kind `world` makes the folder in which command lines run, prints its name and keeps it.
    """
    child.warm_up()
    chosen = [kind for kind in kinds or KINDS if kind != "world"]
    for kind in chosen:
        if kind not in KINDS:
            sys.exit(f"attack: KIND must be one of world, {', '.join(KINDS)}, got {kind!r}")
    if not chosen:
        print(World(Path(tempfile.mkdtemp(prefix="attack-"))).copy())
        return
    tallies = []
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
        world = World(Path(folder))
        for kind in chosen:
            print(f"{kind}: {KINDS[kind][1]}", flush=True)
            tallies.append(_run(kind, world, seed, minutes / len(chosen), cases, case))
    for tally in tallies:
        _print(tally)
    if record is not None:
        rows = json.loads(record.read_text())["rows"] if record.exists() else []
        record.write_text(json.dumps(_record(rows, tallies, seed), indent=2) + "\n")
    sys.exit(any(tally.failed for tally in tallies))


def _run(kind: str, world: World, seed: int, minutes: float, cases: int | None, case: int | None) -> Tally:
    tally, begin = Tally(kind), time.monotonic()
    module = importlib.import_module(KINDS[kind][0])
    module.attack(world, tally, seed=seed, minutes=minutes, cases=cases, case=case)
    tally.seconds = time.monotonic() - begin
    return tally


def _print(tally: Tally) -> None:
    notes = ", ".join(f"{note} {number}" for note, number in sorted(tally.notes.items()))
    print(f"\n{tally.name}: {tally.cases} cases in {tally.seconds:.0f} s, {tally.failed} failures; {notes}")
    for failure in sorted(tally.failures.values(), key=lambda failure: failure.what):
        print(f"  {failure.what}\n    {failure.again}")


def _record(rows: list[list[object]], tallies: list[Tally], seed: int) -> dict[str, object]:
    """A record of results/: the rows of earlier runs, and one more for each kind."""
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "format": 1,
        "id": "reliability",
        "group": "Reliability",
        "order": 900,
        "title": "Attacks",
        "kind": "measured",
        "columns": ["attack", "seed", "commit", "cases", "failures", "causes"],
        "rows": [*rows, *([t.name, seed, commit, t.cases, t.failed, len(t.failures)] for t in tallies)],
        "note": "Cases of kills are kills, those of soak are calls; commit and seed are those of each row.",
        "hardware": "two shared CPU cores, torch 2.13",
        "command": ["make attack"],
        "commit": commit,
        "seed": None,
        "date": datetime.date.today().isoformat(),
    }


if __name__ == "__main__":
    app(prog_name="python -m attack")
