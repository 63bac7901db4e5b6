"""A soak: one process samples 2,000 times, and its memory stays flat."""

import json
from pathlib import Path

from attack import child
from attack.findings import Failure, Tally
from attack.world import World

_CALLS = 2000
_FIRST = 300  # calls after which memory is measured for the first time
_GROWTH = 8 << 20  # bytes between then and the end


def attack(world: World, tally: Tally, *, seed: int, minutes: float, cases: int | None, case: int | None) -> None:
    """Sample in one process. The time is a limit, not a target."""
    calls = min(_CALLS, cases or _CALLS)

    def call() -> None:
        _sample(calls, seed)

    outcome = child.run(call, world.copy(), seconds=max(60.0, 60 * minutes))
    done = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("[")]
    tally.cases = max(0, (done[-1][0] if done else 0) - 1)
    again = f"python -m attack soak --seed {seed}"
    if outcome.status and not outcome.slow:
        tally.add(Failure(f"soak: {outcome.err.strip()[-200:]}", again))
        return
    sizes = [size for number, size in done if number >= min(_FIRST, calls // 2)]
    growth = sizes[-1] - sizes[0] if sizes else 0
    tally.count("KiB more at the end", growth >> 10)
    tally.add(Failure(f"soak: {growth >> 20} MiB more after {done[-1][0]} calls", again) if growth > _GROWTH else None)


def _sample(calls: int, seed: int) -> None:
    """Sample from models of images, labels and cells in turn, by several samplers; print the memory in use."""
    import blackout as bo

    image, labels, cells = bo.load("model"), bo.load("labels"), bo.CountModel.load("cells-model")
    for number in range(1, calls + 1):
        which = number % 5
        if which == 0:
            image.sample(2, num_steps=2, seed=seed + number)
        elif which == 1:
            labels.sample(4, num_steps=3, seed=number, label=number % 2, guidance=2.0)
        elif which == 2:
            cells.sample(3, num_steps=2, seed=number)
        elif which == 3:
            labels.sample(4, num_steps=3, sampler="multistep", seed=number)
        else:
            labels.sample(2, num_steps=2, sampler=bo.TauLeaping(corrector_steps=1), seed=number)
        if number % 100 == 0 or number == calls:
            print(json.dumps([number, _resident()]), flush=True)


def _resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
