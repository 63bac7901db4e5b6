"""DiffusionModel: process, observation times, network and head; trained, sampled, measured, saved."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from blackout import bits, hub, validate
from blackout.conditioning import Label, check_label, guided, per_row
from blackout.data.inputs import read_inputs, read_training
from blackout.labels import ClassNames, check_class_names
from blackout.network import Head, Predictor
from blackout.network.build import build_head, build_network
from blackout.posterior import Posterior
from blackout.process import MarkovProcess
from blackout.process.data import check_data, check_process, find_process
from blackout.progress import fit_progress, sample_progress
from blackout.random import mix
from blackout.record import ModelRecord, describe, model_config, model_parts
from blackout.sampling import Sampler, choice, fit_times
from blackout.sampling.base import check_samples
from blackout.sampling.inpainting import inpainting
from blackout.sampling.padding import padding
from blackout.times import ObservationTimes
from blackout.times.grid import check_times
from blackout.training.config import TrainConfig
from blackout.training.saved import write_model


class DiffusionModel:
    """A process, its observation times and a network: `fit` trains it, `sample` and `bits_per_dim` use it.

    Parameters
    ----------
    process
        The forward process.
    times
        The observation times.
    network, head
        A module network(x, position, label) -> raw outputs, see `blackout.network.Network`, and what they mean.
    time_input, shape
        How time enters the network, "logit" (continuous) or "index" (the authors'), and the shape of a data point.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> x = torch.randint(0, 5, (64, 1, 8, 8))
    >>> model = bo.DiffusionModel.for_data(x, bo.PureDeath(max_count=4), width=16, blocks=1)
    >>> model.fit(x, steps=2, batch_size=8).sample(3, num_steps=5).shape
    torch.Size([3, 1, 8, 8])
    """

    def __init__(
        self,
        process: MarkovProcess,
        times: ObservationTimes,
        network: nn.Module,
        head: Head,
        time_input: str = "logit",
        shape: tuple[int, ...] | None = None,
    ) -> None:
        check_process(process).terminal((0,))  # raises, with the reason, for one without a terminal distribution
        if check_times(times) and process.discrete_time and bool((times.values != times.values.round()).any()):
            raise ValueError(f"times must be integers, the steps of the chain, got {times!r}")
        self.process, self.times, self.record = process, times, ModelRecord()
        self.predictor = Predictor(network, head, process, time_input, times.values)
        self.shape = None if shape is None else validate.shape(shape)
        self.predictor.eval()

    def __repr__(self) -> str:
        return f"DiffusionModel(\n  {describe(self.predictor, self.record, self.shape, self.ending)}\n)"

    @property
    def ending(self) -> str:
        """Where sampling starts, and the tilt that remains there, in words."""
        return f"ends at t={self.times.t_end:.4g}" + (f": {self.record.tilt}" if self.record.tilt else "")

    @staticmethod
    def for_data(
        x: Any,
        process: MarkovProcess | str,
        times: ObservationTimes | None = None,
        *,
        head: str = "auto",
        preset: str = "tiny",
        num_classes: int = 0,
        seed: int = 0,
        time_input: str = "logit",
        **network: Any,
    ) -> "DiffusionModel":
        """A new model for data like x under a process, with a suitable network and head.

        `x` holds integers of shape (n, ...), in any form that `fit` takes. A process by its name in `PROCESSES` has as
        many states as the data. Times are by default those of `ObservationTimes.for_process`, for x; `head` is a name
        of `HEADS` or "auto": by the process. `network` may hold width, blocks, dropout and kind (a name of `NETWORKS`).
        """
        given = read_inputs(x)
        process = find_process(process, given.x, given.max_state)
        x = check_data(given.x, process)
        made, shape = build_head(head, x, process, preset), tuple(x.shape[1:])
        module = build_network(shape, made, process, preset=preset, num_classes=num_classes, seed=seed, **network)
        grid = ObservationTimes.for_process(process, x0=x) if times is None else times
        return DiffusionModel(process, grid, module, made, time_input, shape)

    @property
    def device(self) -> torch.device:
        return self.predictor.grid.device

    @property
    def num_classes(self) -> int:
        return self.predictor.num_classes

    @property
    def class_names(self) -> ClassNames:
        return self.record.class_names

    @property
    def max_state(self) -> int | None:
        """The largest state of data; None: there is none."""
        return self.process.max_state

    def to(self, device: torch.device | str, precision: str = "auto") -> "DiffusionModel":
        """The model on a device; the network computes in "float32" or "bfloat16" ("auto": bfloat16 on CUDA)."""
        dtypes = {"auto": None, "float32": torch.float32, "bfloat16": torch.bfloat16}
        chosen = dtypes[validate.choice("precision", precision, tuple(dtypes))]
        self.predictor.to(validate.device(device))
        self.predictor.dtype = chosen or (torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        return self

    def with_predictor(self, predictor: Predictor) -> "DiffusionModel":
        """The same model with other weights."""
        other = copy.copy(self)
        other.predictor = predictor
        return other

    def with_record(self, **facts: Any) -> "DiffusionModel":
        """The same model with other facts in its record: fields of `ModelRecord`."""
        other = copy.copy(self)
        other.record = replace(self.record, **facts)
        if other.class_names is not None:
            check_class_names(other.class_names, self.num_classes)
        return other

    def with_sampling(self, **defaults: Any) -> "DiffusionModel":
        """The same model with other defaults for sampling: fields of `SamplingDefaults`."""
        return self.with_record(sampling=replace(self.record.sampling, **defaults))

    def compile(self) -> "DiffusionModel":
        """Compile the network on CUDA, where it pays after some hundred calls; elsewhere nothing happens."""
        if self.device.type == "cuda":
            self.predictor.network.compile(mode="reduce-overhead")
        return self

    def posterior(self, xt: Tensor, t: Tensor, label: Label = None) -> Posterior:
        """The posterior of X_0 given X_t = xt, shape (batch, ...), at times t, shape () or (batch,)."""
        with torch.no_grad():
            return self.predictor.posterior(xt, t, per_row(label, xt))

    def denoiser(self, label: Label = None, guidance: float = 1.0) -> Callable[[Tensor, Tensor], Posterior]:
        """(xt, t) -> posterior for one label; a guidance scale other than 0 and 1 calls the network twice."""
        return guided(self.posterior, label, guidance, self.predictor.conditions)

    def fit(
        self,
        x: Any,
        labels: Any = None,
        *,
        class_names: Any = None,
        steps: int = 1000,
        batch_size: int = 64,
        out: str | Path | None = None,
        listener: Callable[..., None] | None = None,
        progress: bool | None = None,
        **overrides: Any,
    ) -> "DiffusionModel":
        """Train on integer data x of shape (n, ...), as `blackout train` does; the averaged weights are kept.

        `x` is a tensor, an array, a `Dataset`, or a Dataset or DataLoader of torch, whose items may have labels. It
        starts from the present weights, or from those of `init`. `labels` has the class of each data point, a number
        or a name, `class_names` all names (default: those in `labels`, sorted); `out` is a run folder, from which the
        same call resumes; `progress` shows a bar (None: if it can be seen); `overrides` are fields of `TrainConfig`.
        """
        x, labels, names = read_training(x, labels, class_names, self.num_classes, self.class_names)
        options = {"steps": steps, "batch_size": batch_size, **overrides}
        config = TrainConfig.for_fit(self.process, self.predictor.head, self.times, self.num_classes, **options)
        self.record = replace(self.record, class_names=names)
        with fit_progress(listener, config.optimiser.steps, progress) as listener:
            return self.train(config, x, labels, None if out is None else validate.path("out", out), listener)

    def train(
        self, config: TrainConfig, x: Any, labels: Any = None, folder: Path | None = None, listener: Any = None
    ) -> "DiffusionModel":
        """Train under a complete configuration. A run that diverges leaves the model as it was.

        `x` is a tensor or `SparseRows`; the other arguments are checked, and as in `fit`.
        """
        from blackout.training.run import train

        train(self, config, x, labels, folder, listener)
        return self

    def sample(
        self,
        num: int,
        num_steps: int | str | None = "auto",
        sampler: Sampler | str | None = None,
        seed: int = 0,
        *,
        times: choice.Times = None,
        label: Any = None,
        guidance: float = 1.0,
        observed: Any = None,
        mask: Any = None,
        resample: int | None = None,
        start_index: int = 0,
        batch_size: int = 256,
        trajectory: bool = False,
        callback: Callable[[int, int, Tensor], None] | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Sample from the model: integers, int64, shape (num, ...).

        Parameters
        ----------
        num_steps, times
            Number of steps ("auto": 250, unless `sampling` has another default; None: as many as there are times, which
            is also the most), and where they are: `ObservationTimes`, a name of `TIME_RULES`, or None for the default.
        sampler
            A `Sampler`, a name of `SAMPLERS`, or None: the default of `sampling`, or else of process and head.
        seed, start_index
            Sample i depends on the seed and i alone, up to rounding; `start_index` is the first i.
        label, guidance
            Class of all samples or of each, (num,), number or name; guidance scale (0: unconditional, 1: conditional).
        observed, mask, resample
            Inpainting: entries given where `mask` is true, of all samples or of each, and repetitions of a step.
        trajectory, callback, progress
            Whether to return all states from X_T on, (steps + 1, num, ...); callback(k, steps, x) follows each step;
            whether to show a bar (None: in terminals and notebooks, unless there is a callback).
        """
        if self.shape is None:
            raise ValueError("the shape of the data is not known yet: call fit, or give `shape`")
        num, size = validate.integer("num", num, 0), validate.integer("batch_size", batch_size, 1)
        seed, start_index = validate.integer("seed", seed, 0), validate.integer("start_index", start_index, 0)
        label = check_label(label, guidance, num, self.num_classes, self.class_names, self.predictor.conditions)
        grid, shape = self.sampling_times(num_steps, times), (num, *self.shape)
        check_samples(num, self.shape, len(grid) + 1 if validate.boolean("trajectory", trajectory) else 2, self.device)
        if observed is None and mask is None and resample is None and self.record.lengths:  # of different lengths
            observed, mask, resample = *padding(self.process, shape, self.record.lengths, seed, start_index), 0
        method = inpainting(self.sampler(sampler, num_steps=len(grid)), self.process, shape, observed, mask, resample)
        parts, starts = [], range(0, max(1, num), size)
        with sample_progress(callback, len(starts), progress) as callback:
            for start in starts:
                rows = slice(start, min(start + size, num))
                denoise = self.denoiser(label[rows] if isinstance(label, Tensor) else label, guidance)
                dropout = mix(seed, start_index + start) if self.record.sampling.dropout else None
                with self.predictor.with_dropout(dropout):
                    parts.append(method.rows(rows).sample(
                        denoise, self.process, grid, (rows.stop - start, *self.shape), seed, trajectory,
                        start_index=start_index + start, device=self.device, callback=callback,
                    ))  # fmt: skip
        return torch.cat(parts, dim=1 if trajectory else 0)

    def sampling_times(self, num_steps: int | str | None = None, times: choice.Times = None) -> ObservationTimes:
        """The times of a sample of so many steps, see `sample`; at most as many as the model has."""
        return choice.sampling_times(self.times, self.process, *self._chosen(num_steps, times), self.record.fitted)

    def sampling_rule(self, num_steps: int | str | None = None, times: choice.Times = None) -> str:
        """The name of the time rule in effect; empty for given times and the model's own."""
        return choice.sampling_rule(self.times, self.process, *self._chosen(num_steps, times), self.record.fitted)

    def _chosen(self, num_steps: Any, times: choice.Times) -> tuple[int, choice.Times]:
        defaults, by_index = self.record.sampling, self.predictor.time_input == "index"
        return choice.steps_and_times(defaults, self.times, by_index, num_steps, times)

    def fit_times(
        self, x: Any, seed: int = 0, *, label: Label = None, num_candidates: int = 64, **options: Any
    ) -> "DiffusionModel":
        """The model with times fitted to it and to data x, (n, ...), its default for few steps: see `fit_times`.

        Data points with a `label` each are evaluated all at once.
        """
        x = check_data(read_inputs(x).x, self.process, self.shape).to(self.device)
        grid = self.with_record(fitted=None).sampling_times(validate.integer("num_candidates", num_candidates, 1))
        options |= {"batch_size": len(x)} if isinstance(label, Tensor) else {}
        return self.with_record(fitted=fit_times(self.denoiser(label), self.process, grid, x, seed, **options))

    def sampler(
        self, name: Sampler | str | None = None, corrector_steps: int = 0, num_steps: int | str | None = "auto"
    ) -> Sampler:
        """A sampler by its name in `SAMPLERS` (None, "auto": the default); ValueError if it does not fit the model."""
        chosen = self.default_sampler(num_steps) if name is None or (isinstance(name, str) and name == "auto") else name
        return choice.choose_sampler(chosen, self.process, self.predictor.head.answers, corrector_steps)

    def default_sampler(self, num_steps: int | str | None = "auto") -> str:
        """The name of the sampler that so many steps are taken with, unless another one is given."""
        named, head, (steps, _) = self.record.sampling.sampler, self.predictor.head, self._chosen(num_steps, None)
        return choice.default_sampler(self.process, head.answers, steps, self.shape) if named == "auto" else named

    def bits_per_dim(
        self,
        x: Any,
        seed: int = 0,
        *,
        num_times: int = 32,
        bound: str = "auto",
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> bits.BitsPerDim:
        """The evidence bound of data x, (n, ...), in bits for each component, with its error; its `bound` names it.

        "continuous" is `evidence_bound`, "steps" `Sampler.bound` of the T times, "auto" the latter for chains and for
        softplus, whose continuous bound is infinite. `num_times` times or steps; callback(done, n) follows each batch.
        """
        x, kind = check_data(read_inputs(x).x, self.process, self.shape), self.bound_kind(bound)
        each = partial(self.bits_of_each, seed=seed, num_times=num_times, bound=kind)
        return bits.mean_bits(lambda rows: each(x[rows], start_index=rows.start), len(x), kind, batch_size, callback)

    def bits_of_each(self, x: Tensor, seed: int = 0, *, label: Label = None, **options: Any) -> Tensor:
        """The same for each data point, shape (n,), on the CPU; `options` are those of `blackout.bits.bits_of_each`."""
        head, x = self.predictor.head, x.to(self.device)
        return bits.bits_of_each(self.denoiser(label), self.process, self.times, head, x, seed, **options)

    def bound_kind(self, bound: str = "auto") -> str:
        """The bound in effect for a choice of `bits_per_dim`: "continuous" or "steps"."""
        return bits.choose_bound(bound, self.process, self.predictor.head)

    def config(self) -> dict[str, Any]:
        """Everything but the weights, as plain JSON."""
        return model_config(self.predictor, self.record, self.shape, self.times.values)

    @staticmethod
    def from_config(config: dict[str, Any], *, outline: bool = False) -> "DiffusionModel":
        """The model that `config` described, its weights still to be loaded; an outline has no memory for them."""
        return DiffusionModel(**model_parts(config, outline)).with_record(**vars(ModelRecord.from_config(config)))

    push_to_hub, from_pretrained = hub.push_to_hub, staticmethod(hub.from_pretrained)

    def save(self, folder: str | Path, dtype: torch.dtype = torch.float32) -> Path:
        """Write model.json, and the weights as safetensors of at most 16 MiB each, in float32, float16 or int8.

        A model that the folder holds is replaced atomically: interrupted, the folder holds the old one or the new one.
        """
        if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float16, torch.int8):
            raise ValueError(f"dtype must be torch.float32, torch.float16 or torch.int8, got {dtype!r}")
        return write_model(validate.path("folder", folder), self.config(), self.predictor.state_dict(), dtype)
