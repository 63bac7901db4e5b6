"""Validation: scores of the averaged weights during a run, the best weights, and when to end."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from blackout.network import Predictor
from blackout.training.checkpoints import Checkpoint

_GROUP = "best"  # of tensors in a checkpoint
_STATE = "validation"


class Validation:
    """Scores the averaged weights every few steps, keeps the best ones, and ends a run that no longer improves.

    Parameters
    ----------
    score
        A predictor in evaluation mode -> the score, lower is better. It should draw the same noise every time, so that
        scores differ by the weights alone.
    every
        Steps between scores; the last step of a run has one too.
    patience
        Scores in a row without a new best one after which the run ends; 0: it never does.

    Attributes
    ----------
    scores
        The score at each step that has one.
    weights
        The best weights so far; None before the first score.
    """

    def __init__(self, score: Callable[[Predictor], float], every: int, patience: int = 0) -> None:
        self._score, self.every, self.patience = score, every, patience
        self.scores: dict[int, float] = {}
        self.weights: dict[str, Tensor] | None = None

    @property
    def best_step(self) -> int | None:
        """The step of the best weights."""
        return min(self.scores, key=self.scores.__getitem__) if self.scores else None

    @property
    def last(self) -> float | None:
        """The newest score."""
        return self.scores[max(self.scores)] if self.scores else None

    @property
    def ended(self) -> bool:
        """Whether the last `patience` scores brought nothing better."""
        best = self.best_step
        return best is not None and 0 < self.patience <= sum(step > best for step in self.scores)

    def update(self, step: int, last: bool, averaged: Predictor) -> bool:
        """Score the weights if it is time to; returns whether the run ends."""
        if step % self.every and not last:
            return False
        with torch.no_grad():
            score = self._score(averaged.eval())
        self.scores[step] = score if math.isfinite(score) else math.inf
        if self.best_step == step:
            self.weights = {name: value.detach().clone() for name, value in averaged.state_dict().items()}
        return self.ended

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The groups of a checkpoint; none before the first score."""
        if self.weights is None:
            return {}
        state = {
            "steps": torch.tensor(list(self.scores)),
            "scores": torch.tensor(list(self.scores.values()), dtype=torch.float64),
        }
        return {_GROUP: self.weights, _STATE: state}

    def restore(self, checkpoint: Checkpoint) -> None:
        """The state that `tensors` described."""
        if checkpoint.has(_GROUP):
            state, self.weights = checkpoint.tensors(_STATE), checkpoint.tensors(_GROUP)
            self.scores = dict(zip(state["steps"].tolist(), state["scores"].tolist(), strict=True))
