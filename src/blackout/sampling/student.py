"""The sampler of distilled models."""

from torch import Tensor

from blackout.process.base import MarkovProcess
from blackout.random import Streams
from blackout.sampling.base import Sampler
from blackout.sampling.step import Step


class StudentBridge(Sampler):
    """X_0 drawn by a distilled model, all components at once, then X_s from the exact bridge. Not in the paper.

    Only for the times that the model was distilled for; without corrector steps, which would need others.

    Examples
    --------
    >>> import blackout as bo
    >>> x = torch.randint(0, 5, (64, 3))
    >>> teacher = bo.DiffusionModel.for_data(x, bo.PureDeath(4), width=8, blocks=1).fit(x, steps=2)
    >>> student = bo.distill(teacher, x, num_steps=2, steps=1)
    >>> student.sample(3, sampler=StudentBridge()).shape
    torch.Size([3, 3])
    """

    needs_draws = True

    def check(self, process: MarkovProcess) -> None:
        if not process.mean_suffices:
            raise ValueError(f"process must be PureDeath for a distilled model, got {process!r}")
        if self.corrector_steps:
            raise ValueError(f"corrector_steps must be 0 for a distilled model, got {self.corrector_steps}")

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        return at.bridge(at.posterior(xt).sample(rng), xt, rng)

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        raise ValueError("the steps of a distilled model have no computable probability, and no evidence bound")
