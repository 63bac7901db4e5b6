"""A process: states advance on a ring, and jump to any state now and then."""

import numpy

from blackout.process import PROCESSES
from blackout.process.matrix import GeneratorProcess


class Clockwork(GeneratorProcess):
    """i -> i + 1 (mod S) at rate `speed`, and to every state at rate 1 / S. Not in the paper."""

    arguments = ("num_states", "speed")

    def __init__(self, num_states: int, speed: float = 0.5) -> None:
        self.speed = speed
        advance = numpy.roll(numpy.eye(num_states), 1, axis=1)
        rates = speed * advance + 1 / num_states
        super().__init__(rates - numpy.diag(rates.sum(1)), ordered=False)


PROCESSES.add("clockwork", Clockwork, "a ring with resets")
