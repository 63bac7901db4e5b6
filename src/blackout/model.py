"""DiffusionModel: process + times + network + head, trained, sampled, measured, saved."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.classes import Label, ModelDenoiser, check_label, check_labels, each
from blackout.likelihood import BitsPerDim, evidence_bound
from blackout.network import (
    HEADS,
    LAW_HEADS,
    MLP,
    Head,
    LawHead,
    LawPredictor,
    MixtureHead,
    MLPConfig,
    NCSNpp,
    Predictor,
    RatesHead,
    StateHead,
    UNetConfig,
    law_head,
)
from blackout.process import Absorbing, Chain, MarkovProcess, PureDeath
from blackout.process.description import describe_process
from blackout.sampling import BinomialBridge, Conditioned, Planes, PosteriorBridge, Sampler, TauLeaping, condition
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from blackout.data import SparseRows
    from blackout.training.config import TrainConfig
    from blackout.training.loop import Report, Trainer

FORMAT = 1
_STEPS = 256  # of a chain, up to which its bound is summed over all of them
NETWORKS: dict[str, tuple[type[nn.Module], type[Any]]] = {"NCSNpp": (NCSNpp, UNetConfig), "MLP": (MLP, MLPConfig)}


class DiffusionModel:
    """What is trained, sampled and saved.

    `network(x, position, label)` maps what it is shown of a state to raw outputs; `head` says what they mean: X_0 - X_t
    under pure death, or, under any process with finitely many states, a law over X_0 for each component.
    """

    def __init__(
        self,
        process: MarkovProcess,
        times: ObservationTimes,
        network: nn.Module,
        head: Head | StateHead,
        conditioning: str = "logit",
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.process, self.times = process, times
        self._walked: tuple[str, ObservationTimes] | None = None
        self.predictor: Predictor | LawPredictor
        if isinstance(head, StateHead):
            self.predictor = LawPredictor(network, head, process)
        elif isinstance(process, PureDeath):
            self.predictor = Predictor(network, head, conditioning, times.values, process)
        else:
            raise ValueError(f"process must be PureDeath for a head that predicts X_0 - X_t, got {process!r}")
        process.terminal((0,))  # refuses, and says why, a process that no walk back can start from
        if isinstance(process, Chain) and bool((times.values != times.values.round()).any()):
            raise ValueError(f"times must be whole numbers, the steps of the chain, got {times!r}")
        self.shape = None if shape is None else tuple(shape)
        self.predictor.eval()

    @staticmethod
    def for_data(
        x: Any,
        process: MarkovProcess,
        times: ObservationTimes | None = None,
        *,
        head: str = "auto",
        preset: str = "tiny",
        num_classes: int = 0,
        seed: int = 0,
        **network: Any,
    ) -> "DiffusionModel":
        """A new model for data like x, integers of shape (n, ...), under a process, with a suitable network and head.

        Times are by default those of `ObservationTimes.for_process`. The head is the bounded logit, or gamma–Poisson
        without a largest count, for pure death, and a law over X_0 for all others, by levels where there are many and
        they are ordered. `network` may hold width and blocks.
        """
        from blackout.training.build import build_law_predictor, build_predictor, data_statistics
        from blackout.training.config import TrainConfig

        x = _data(x, process)
        validate.choice("head", head, ("auto", *HEADS, *LAW_HEADS))
        if head == "auto":
            pure = "gamma-poisson" if process.num_states is None else "bounded-logit"
            head = pure if isinstance(process, PureDeath) else law_head(process)
        largest = 0 if process.num_states is None else process.num_states - 1
        config = TrainConfig(
            head=head, preset=preset, seed=seed, max_count=largest, class_conditional=num_classes > 0, **network
        )
        times = times or ObservationTimes.for_process(process)
        if head in LAW_HEADS:
            law = build_law_predictor(config, x, process, num_classes)
            return DiffusionModel(process, times, law.network, law.head, shape=tuple(x.shape[1:]))
        predictor = build_predictor(config, x.shape[1:], data_statistics(x), num_classes)
        return DiffusionModel(process, times, predictor.network, predictor.head, shape=tuple(x.shape[1:]))

    @property
    def device(self) -> torch.device:
        return self.predictor.grid.device

    @property
    def num_classes(self) -> int:
        config = getattr(self.predictor.network, "config", None)
        return int(config.num_classes) if isinstance(config, UNetConfig | MLPConfig) else 0

    @property
    def _numbers(self) -> int | None:
        """How many numbers the network can be given beside a class; None: it takes classes alone."""
        config = getattr(self.predictor.network, "config", None)
        return config.covariates if isinstance(config, MLPConfig) else None

    @property
    def max_state(self) -> int | None:
        """The largest state that data can have; None: there is none."""
        if isinstance(self.process, PureDeath):
            return self.process.max_count
        assert isinstance(self.predictor, LawPredictor)
        return int(self.predictor.head.prior.sum(0).nonzero().max())  # a mask is a state of the process, not of data

    def to(self, device: torch.device | str) -> "DiffusionModel":
        """The model on a device; on CUDA the network computes in bfloat16."""
        self.predictor.to(validate.device(device))
        self.predictor.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        return self

    def with_predictor(self, predictor: Predictor | LawPredictor) -> "DiffusionModel":
        """The same model with other weights."""
        other = copy.copy(self)
        other.predictor = predictor
        return other

    def compile(self) -> "DiffusionModel":
        """The network compiled, on CUDA, where it pays after some hundred passes; elsewhere the model as it is."""
        if self.device.type == "cuda":
            self.predictor.network.compile(mode="reduce-overhead")
        return self

    def denoise(self, xt: Tensor, t: Tensor, label: Label = None) -> Tensor:
        """What the process asks for: y = E[X_0 - X_t | X_t] for pure death, reverse rates (..., R) for the others."""
        with torch.no_grad():
            if isinstance(self.predictor, LawPredictor):
                return self.predictor.rates(xt, t, each(label, xt))
            y: Tensor = self.predictor(xt, t, each(label, xt))
            return y

    def law(self, xt: Tensor, t: Tensor, label: Label = None) -> Tensor:
        """p(X_0 = o | X_t = xt) for each component and state o, shape (..., S), of a model whose head gives laws."""
        if not isinstance(self.predictor, LawPredictor):
            raise ValueError(f"head must give a law over X_0 here, got {type(self.predictor.head).__name__}, a mean")
        with torch.no_grad():
            return self.predictor.law(xt, t, each(label, xt))

    def fit(
        self,
        x: Any,
        labels: Any = None,
        *,
        steps: int = 1000,
        batch_size: int = 64,
        out: str | Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
        **overrides: Any,
    ) -> "DiffusionModel":
        """Train on integer data x of shape (n, ...), as `blackout train` does; the averaged weights are kept.

        `labels` holds the class of each, from 0 on, for a model with classes. With `out`, a run folder: checkpoints,
        metrics, and the place to resume from. `overrides` are fields of `TrainConfig`, such as learning_rate or loss.
        """
        from blackout.training.config import TrainConfig

        if labels is None and self.num_classes:
            raise ValueError(f"labels are needed: the model was made for {self.num_classes} classes, got None")
        if labels is not None:
            labels = check_labels("labels", labels, len(x), self.num_classes)
        chain, names = (
            isinstance(self.process, Chain),
            {cls: name for name, cls in (*HEADS.items(), *LAW_HEADS.items())},
        )
        settings = {
            "learning_rate": 1e-3,
            "ema": 0.999,
            "stratified": True,
            "time_law": "grid" if chain else "logistic",
            "process": "pure-death" if isinstance(self.process, PureDeath) else type(self.process).__name__,
            "head": names.get(type(self.predictor.head), type(self.predictor.head).__name__),
            **overrides,
        }
        config = TrainConfig(
            max_count=self.max_state or 0,
            num_steps=len(self.times),
            t_end=self.times.t_end,
            steps=steps,
            batch_size=batch_size,
            log_every=settings.pop("log_every", min(50, steps)),
            class_conditional=self.num_classes > 0,
            **settings,
        )
        return self.train(config, x, labels, Path(out) if out is not None else None, listener)

    def train(
        self,
        config: "TrainConfig",
        x: "Tensor | SparseRows",
        labels: Tensor | None = None,
        folder: Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
    ) -> "DiffusionModel":
        """Train under a whole configuration. A run that diverges leaves the model as it was."""
        from blackout.data import SparseRows
        from blackout.training.config import refuse_another
        from blackout.training.loop import Diverged, Trainer

        if not isinstance(x, SparseRows):
            x = _data(x, self.process, self.shape)
        self.shape = self.shape or tuple(x.shape[1:])
        description = None
        if folder is not None:
            refuse_another(config, folder)
            description = self.describe()
        trainer = Trainer(config, self.predictor, self.process, self.times, folder, description)
        kept, before = trainer.averaged.state_dict(), copy.deepcopy(self.predictor.state_dict())
        self.predictor.train()
        try:
            trainer.run(x, labels, listener)
        except Diverged:
            kept = before
            raise
        finally:
            self.predictor.load_state_dict(kept)
            self.predictor.eval()
        return self

    def sample(
        self,
        num: int,
        num_steps: int | None = 250,
        sampler: Sampler | None = None,
        seed: int = 0,
        *,
        label: Any = None,
        guidance: float = 1.0,
        known: Tensor | None = None,
        mask: Tensor | None = None,
        resample: int | None = None,
        start_index: int = 0,
        batch_size: int = 256,
        trajectory: bool = False,
        callback: Callable[[int, int, Tensor], None] | None = None,
    ) -> Tensor:
        """`num` samples, int64. Sample number i depends on the seed and i alone; `start_index` is the number of the first.

        `num_steps`: how many steps a walk has; None, or more than the model has times, is as many as it has.
        `label`: the class of all samples, or of each, shape (num,); `guidance` strengthens it, and 0 leaves it out.
        `known`: states of which those where `mask` is true are kept, for all samples or for each; `resample` is how
        often a step is taken again then.
        """
        if self.shape is None:
            raise ValueError("the model does not know the shape of its data yet: fit it, or give `shape`")
        num, batch_size = validate.integer("num", num, 0), validate.integer("batch_size", batch_size, 1)
        label = check_label(label, guidance, num, self.num_classes, self._numbers)
        times = self.walk(num_steps)
        method = condition(self._sampler(sampler), self.process, (num, *self.shape), known, mask, resample)
        walks = []
        for start in range(0, max(1, num), batch_size):
            rows = slice(start, min(start + batch_size, num))
            walk = method.rows(rows) if isinstance(method, Conditioned) else method
            chosen = label[rows].to(self.device) if isinstance(label, Tensor) else label
            walks.append(
                walk.sample(
                    ModelDenoiser(self, chosen, guidance),
                    self.process,
                    times,
                    (rows.stop - start, *self.shape),
                    seed,
                    trajectory,
                    start_index=start_index + start,
                    device=self.device,
                    callback=callback,
                )
            )
        return torch.cat(walks, dim=1 if trajectory else 0)

    def sample_volume(
        self,
        num: int,
        num_steps: int | None = 250,
        seed: int = 0,
        *,
        size: Any = None,
        weight: float = 0.5,
        start_index: int = 0,
        batch_size: int = 256,
        callback: Callable[[int, int, Tensor], None] | None = None,
    ) -> Tensor:
        """`num` volumes, int64, (num, depth, height, width), from a model of slices that may lie across any axis.

        `size`: the three sides, or one for all; by default the side of the slices. `weight`: how far the three slices
        of a voxel are believed, docs/samplers.md#volumes-from-slices. `batch_size` counts slices.
        """
        times, shape = self.walk(num_steps), (validate.integer("num", num, 0), *self.volume_sides(size))
        head, batch = self.predictor.head, validate.integer("batch_size", batch_size, 1)
        assert isinstance(head, LawHead)  # or there would be no sides
        planes = Planes(ModelDenoiser(self, None), self.process, head.prior[0], weight=weight, batch_size=batch)
        return PosteriorBridge().sample(
            planes, self.process, times, shape, seed, start_index=start_index, device=self.device, callback=callback
        )

    def volume_sides(self, size: Any = None) -> tuple[int, ...]:
        """The three sides that `size` means to `sample_volume`; refused where there can be no volumes."""
        if self.shape is None or len(self.shape) != 3 or self.shape[0] != 1:
            raise ValueError(f"volumes need a model of slices, shape (1, height, width), got {self.shape}")
        if not isinstance(self.predictor.head, LawHead):
            name = type(self.predictor.head).__name__
            raise ValueError(f"volumes need a model whose head gives a law over X_0, such as 'categorical', got {name}")
        sides = (size,) * 3 if isinstance(size, int) else tuple(self.shape[2:] * 3 if size is None else size)
        config = getattr(self.predictor.network, "config", None)
        unit = 2 ** (len(config.multipliers) - 1) if isinstance(config, UNetConfig) else 1
        if len(sides) != 3 or any(validate.integer("size", side, 1) % unit for side in sides):
            raise ValueError(f"size must be one side or three, multiples of {unit}, got {size!r}")
        return sides

    def walk_by(self, measure: str) -> "DiffusionModel":
        """Draw samples at equal steps of a measure (`ObservationTimes.equalize`) from now on, whatever their number.

        docs/samplers.md#when-to-look. Likelihoods do not depend on it, and a saved model knows nothing of it.
        """
        if self._is_indexed:
            raise ValueError("a network that knows times by their index alone can be walked back at those alone")
        times = ObservationTimes.equalize(self.process, measure, len(self.times), self.times.t_end)
        self._walked = (measure, times)
        return self

    def walks_by(self, num_steps: int | None = None) -> str:
        """The measure in whose equal steps a walk of so many steps is taken; empty for times of the model's own.

        By "length" if they are fewer than the paper's times that the model has: docs/samplers.md#when-to-look.
        """
        if self._walked is not None:
            return self._walked[0]
        few = num_steps is not None and num_steps < len(self.times)
        return "length" if few and not self._is_indexed and self.times.is_fisher(self.process) else ""

    def walk(self, num_steps: int | None = None) -> ObservationTimes:
        """The times at which samples of so many steps are drawn, or of as many as the model has, if those are fewer."""
        times, steps = self.times, len(self.times)
        if num_steps is not None:
            steps = min(validate.integer("num_steps", num_steps, 1), steps)
        if self._walked is not None:
            times = self._walked[1]
        elif by := self.walks_by(steps):
            times = ObservationTimes.equalize(self.process, by, len(times), times.t_end)
        return times.subset(steps)

    @property
    def _is_indexed(self) -> bool:
        return isinstance(self.predictor, Predictor) and self.predictor.conditioning == "index"

    def _sampler(self, sampler: Sampler | None) -> Sampler:
        method = self.default_sampler() if sampler is None else sampler
        if not isinstance(method, Sampler):
            raise ValueError(f"sampler must be a Sampler, such as TauLeaping(), got {method!r}")
        return method

    def default_sampler(self) -> Sampler:
        """The bridge that the head allows; leaps, for one that gives rates alone."""
        if isinstance(self.process, PureDeath):
            return BinomialBridge()
        return TauLeaping() if isinstance(self.predictor.head, RatesHead) else PosteriorBridge()

    def bits_per_dim(
        self,
        x: Any,
        seed: int = 0,
        *,
        num_times: int = 32,
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> BitsPerDim:
        """The exact continuous-time evidence bound of data x, in bits for each component, with its standard error."""
        x, parts, batch_size = _data(x, self.process, self.shape), [], validate.integer("batch_size", batch_size, 1)
        for start in range(0, len(x), batch_size):
            batch = x[start : start + batch_size]
            parts.append(self.bits_of_each(batch, seed, num_times=num_times, start_index=start))
            if callback is not None:
                callback(min(start + batch_size, len(x)), len(x))
        return BitsPerDim.mean_of(torch.cat(parts))

    def bits_of_each(
        self, x: Tensor, seed: int = 0, *, num_times: int = 32, start_index: int = 0, label: Label = None
    ) -> Tensor:
        """The same for each data point, shape (n,), on the CPU; `start_index` is the number of the first one."""
        x, denoise = x.to(self.device), ModelDenoiser(self, label)
        if isinstance(self.process, Chain):  # the bound of all its steps; of very many, some stand for all
            steps = max(num_times, _STEPS)
            bound = PosteriorBridge().bound(
                denoise, self.process, self.times, x, seed, start_index=start_index, num_steps=steps
            )
        else:
            bound = evidence_bound(
                denoise, self.process, x, num_times, seed, start_index=start_index, method="monte-carlo"
            )
        return bound.cpu() / (math.log(2) * x[0].numel())

    def describe(self) -> dict[str, Any]:
        """All of the model but its weights, as plain JSON."""
        network, head = self.predictor.network, self.predictor.head
        kinds = {cls: name for name, (cls, _) in NETWORKS.items()}
        heads: dict[type, str] = {cls: name for name, cls in (*HEADS.items(), *LAW_HEADS.items())}
        if type(network) not in kinds or type(head) not in heads:
            raise ValueError(f"only the networks and heads of this package can be saved, got {type(network).__name__}")
        config = network.config
        assert isinstance(config, UNetConfig | MLPConfig)
        about: dict[str, Any] = {"kind": heads[type(head)]}
        if isinstance(head, StateHead):
            about["prior"] = list(head.prior.shape)
            about |= {"members": head.members} if isinstance(head, MixtureHead) else {}
        else:
            about |= {"statistics": list(head.mean.shape), "max_count": head.max_count}
        return {
            "format": FORMAT,
            "process": describe_process(self.process),
            "times": self.times.values.tolist(),
            "network": {"kind": kinds[type(network)], **config.as_dict()},
            "head": about,
            "conditioning": self.predictor.conditioning if isinstance(self.predictor, Predictor) else "logit",
            "shape": None if self.shape is None else list(self.shape),
        }

    def save(self, folder: str | Path, dtype: torch.dtype = torch.float32) -> Path:
        """model.json, and the weights as safetensors of at most 16 MiB each, in float32, float16 or int8."""
        from blackout.training.weights import write_weights

        folder, description = Path(folder), json.dumps(self.describe(), indent=2)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"folder must be one, or none yet, got the file {folder}")
        if (folder / "checkpoints").exists():
            raise ValueError(f"{folder} holds a run, which has its weights in checkpoints; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.json").write_text(description + "\n")
        write_weights(self.predictor.state_dict(), folder, dtype)
        return folder


def _data(x: Any, process: MarkovProcess, shape: tuple[int, ...] | None = None) -> Tensor:
    """Data points as a tensor (n, ...) of states; a mask stands for what is not known, and no data point has it."""
    (states,) = validate.states(process.num_states, x=x)
    if states.dim() < 2 or states.numel() == 0:
        raise ValueError(f"x must have shape (n, ...) and hold some data, got {tuple(states.shape)}")
    if shape is not None and tuple(states.shape[1:]) != shape:
        raise ValueError(f"x must have shape (n, {', '.join(map(str, shape))}), got {tuple(states.shape)}")
    # A mask that the dtype cannot hold is not there, and would be compared as another number.
    mask = process.mask_state if isinstance(process, Absorbing) else math.inf
    if mask <= torch.iinfo(states.dtype).max and bool((states == mask).any()):
        raise ValueError(f"x must not hold {mask}, the mask of {process!r}: the mask is one state more than data have")
    return states
