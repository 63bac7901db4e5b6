"""StudentHead: a head for pure death whose network turns noise into a draw of X_0."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackout.network import HEADS
from blackout.network.base import Network
from blackout.network.head import Head, Observation
from blackout.network.predictor import Predictor
from blackout.posterior import Posterior
from blackout.posterior.drawn import DrawnPosterior
from blackout.process.base import MarkovProcess


class StudentHead(Head):
    """y(X_t, z) = X_0 - X_t of a draw of X_0, with standard normal noise z for each component. Not in the paper.

    The noise is one more input of each component. Input and output are otherwise those of the teacher's head; what
    that head takes as a mean is here the draw. See docs/mathematics.md#distillation.

    Parameters
    ----------
    teacher
        The head of the teacher, which predicts E[X_0 - X_t | X_t].
    """

    answers = "draws"

    def __init__(self, teacher: Head) -> None:
        super().__init__()
        if teacher.answers != "mean":
            raise ValueError(
                f"the teacher must have a head that predicts the mean under pure death, such as 'bounded-logit', got "
                f"{type(teacher).__name__}, which gives {teacher.answers}"
            )
        self.teacher = teacher

    def inputs(self, process: MarkovProcess) -> int:
        return self.teacher.inputs(process) + 1

    def outputs(self, process: MarkovProcess) -> int:
        return self.teacher.outputs(process)

    def encode(self, observation: Observation) -> Tensor:
        assert observation.noise is not None
        return torch.cat([self.teacher.encode(observation), observation.noise], 1)

    def posterior(self, raw: Tensor, observation: Observation) -> Posterior:
        """Its `difference` is the draw of X_0 - X_t for the noise of the observation."""
        return self.teacher.posterior(raw, observation)

    def denoise(self, evaluate: Callable[[Observation], Tensor], observation: Observation) -> DrawnPosterior:
        process, xt, t, label = observation.process, observation.xt, observation.t, observation.label

        def generate(noise: Tensor) -> Tensor:
            seen = Observation(process, xt, t, noise, label=label)
            return self.posterior(evaluate(seen), seen).difference()

        return DrawnPosterior(process, xt, t, generate)

    def config(self) -> dict[str, Any]:
        return {"teacher": HEADS.to_config(self.teacher)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "StudentHead":
        return cls(HEADS.from_config(config["teacher"]))

    @classmethod
    def for_data(cls, x: Tensor, process: MarkovProcess, periods: tuple[float, ...] = ()) -> "StudentHead":
        raise ValueError("head 'student' is not trained on data: `blackout distill` makes it from a trained model")

    def check(self, process: MarkovProcess) -> None:
        self.teacher.check(process)

    @property
    def pyramid_inputs(self) -> int:
        return self.teacher.pyramid_inputs


def student_parts(teacher: Predictor, seed: int = 0) -> tuple[Network, StudentHead]:
    """Network and head of a student: copies of the teacher's, with inputs for the noise.

    Their weights are drawn from the seed. With zeros instead, the draws would not depend on the noise, and the
    gradient by these weights would have mean zero.
    """
    if not isinstance(teacher.network, Network):
        raise ValueError(f"the teacher's network must be a Network, got {type(teacher.network).__name__}")
    head = StudentHead(copy.deepcopy(teacher.head))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return teacher.network.with_inputs(1), head
