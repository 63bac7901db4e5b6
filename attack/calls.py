"""Random calls of the Python API, as `attack.api` makes them: an error must be one that it accepts."""

import importlib.util
import itertools
import sys
from pathlib import Path

from attack import child
from attack.findings import Failure, Tally, numbers
from attack.world import World

_CALLS = 50  # in one child
_SECONDS = 60.0


def attack(world: World, tally: Tally, *, seed: int, minutes: float, cases: int | None, case: int | None) -> None:
    """Call functions of the API in children, 50 calls in each. A case is one call; `case` is the number of a child."""
    if importlib.util.find_spec("attack.api") is None:
        print("  there is no module attack.api")
        return
    for number in numbers(case, minutes, None if cases is None else -(-cases // _CALLS)):
        folder = world.copy()

        def call(number: int = number, folder: Path = folder) -> None:
            _calls(seed * 1_000_000 + number)

        outcome = child.run(call, folder, seconds=_SECONDS)
        lines = outcome.out.splitlines()
        done = sum(line.startswith("call ") for line in lines)
        tally.cases += max(0, done - 1)
        last = next((line.removeprefix("call ") for line in reversed(lines) if line.startswith("call ")), "")
        bad = [line.removeprefix("bad ") for line in lines if line.startswith("bad ")]
        if outcome.slow or outcome.hung:
            bad.append(f"{last}: took longer than {_SECONDS:.0f} s")
        elif outcome.status:
            bad.append(f"{last}: status {outcome.status}; {outcome.err.strip()[-200:]}")
        again = f"python -m attack api --seed {seed} --case {number}"
        for what in bad[1:]:
            tally.cases -= 1
            tally.add(Failure(f"api: {what}", again))
        tally.add(Failure(f"api: {bad[0]}", again) if bad else None)


def _calls(seed: int) -> None:
    """In the child: print each call before it is made, and those that fail otherwise than they may."""
    from attack.api import acceptable, calls

    for name, function in itertools.islice(calls(seed), _CALLS):
        print(f"call {name}", flush=True)
        try:
            function()
        except Exception as error:
            if not acceptable(error):
                text = " ".join(str(error).split())[:200]
                print(f"bad {name}: {type(error).__name__}: {text}", flush=True)
    sys.stdout.flush()
