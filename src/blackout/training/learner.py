"""Learner: a predictor whose weights are being optimised, with its optimiser and the average of its weights."""

import copy
from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch import Tensor

from blackout.network import Predictor
from blackout.training.checkpoints import Checkpoint, flatten_optimizer, restore_optimizer
from blackout.training.config import TrainConfig
from blackout.training.weights import load_weights
from blackout.training.worker import Worker


class Learner:
    """Weights in float32, the copy that computes, Adam, and the moving average in `averaged`.

    Parameters
    ----------
    predictor
        What is trained; it is moved to the device of the accelerator.
    beta1
        Adam's first coefficient.
    average
        Whether the moving average is kept; without it, `averaged` is the predictor itself.
    """

    def __init__(
        self, predictor: Predictor, config: TrainConfig, accelerator: Accelerator, beta1: float = 0.9,
        average: bool = True,
    ) -> None:  # fmt: skip
        self.options, run, device = config.optimiser, config.run, accelerator.device
        self.predictor = predictor.to(device)
        self.worker = Worker(self.predictor, run.precision)
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
            self.predictor.parameters(),
            lr=self.options.learning_rate,
            betas=(beta1, self.options.beta2),
            fused=device.type == "cuda",
        )
        self.averaged = copy.deepcopy(self.predictor).requires_grad_(False) if average else self.predictor
        if run.compile:
            # Not the head: it differs between runs, and the network's compiled form is found again in the cache. The
            # graphs of reduce-overhead replay memory that a reduction over processes would still be reading.
            self.worker.module.network.compile(mode=run.compile_mode if accelerator.num_processes == 1 else "default")
        self.module: Callable[..., Tensor] = accelerator.prepare_model(self.worker.module)

    def apply(self, step: int, rate: float) -> None:
        """One step of the optimiser with the gradients of the copy, and of the average."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.worker.collect_gradients()
        if self.options.grad_clip:
            torch.nn.utils.clip_grad_norm_(self.predictor.parameters(), self.options.grad_clip)
        if self.options.ema_first:
            self._average(step)
        self.optimizer.step()
        self.worker.update_weights()
        if not self.options.ema_first:
            self._average(step)

    @torch.no_grad()
    def _average(self, step: int) -> None:
        """Update the moving average; quickly at first, so that it forgets the initial weights.

        torch's AveragedModel reads its counter back from the device twice a step, which stalls a GPU.
        """
        if self.averaged is self.predictor:
            return
        decay = min(self.options.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.averaged.parameters()), list(self.predictor.parameters()), 1 - decay)

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        norms = torch._foreach_norm(list(self.predictor.parameters()))
        return bool(torch.isfinite(torch.stack(norms)).all())

    def tensors(self, prefix: str = "") -> dict[str, dict[str, Tensor]]:
        """The groups of a checkpoint."""
        groups = {
            f"{prefix}weights": self.predictor.state_dict(),
            f"{prefix}optimizer": flatten_optimizer(self.optimizer),
        }
        if self.averaged is not self.predictor:
            groups[f"{prefix}averaged"] = self.averaged.state_dict()
        return groups

    def restore(self, checkpoint: Checkpoint, prefix: str = "") -> None:
        """The state that `tensors` described."""
        load_weights(self.predictor, checkpoint.tensors(f"{prefix}weights"), checkpoint.path)
        if self.averaged is not self.predictor:
            load_weights(self.averaged, checkpoint.tensors(f"{prefix}averaged"), checkpoint.path)
        restore_optimizer(self.optimizer, checkpoint.tensors(f"{prefix}optimizer"))
        self.worker.update_weights()
        self.worker.module.head.load_state_dict(self.predictor.head.state_dict())
