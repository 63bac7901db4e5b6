"""CountModel: raw counts of thousands of genes in, raw counts out, in a few lines."""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.cells.counts import Counts, stack
from blackout.cells.covariates import Covariates
from blackout.cells.folder import FORMAT, begin_run, fingerprint, read_description, saved_config, write_description
from blackout.cells.imputation import impute, sparse_counts
from blackout.cells.observed import KnownCounts, read_known
from blackout.cells.read import read_counts, to_anndata
from blackout.data import SparseRows
from blackout.io.models import CELLS, load_folder
from blackout.likelihood import BitsPerDim
from blackout.model import DiffusionModel
from blackout.network import MLPConfig
from blackout.process import PureDeath
from blackout.recipes import recipe
from blackout.sampling import Sampler, TauLeaping
from blackout.training.config import TrainConfig, changed, refuse_another

if TYPE_CHECKING:
    from blackout.training.loop import Report, Trainer

_UNSEEN = "the model has seen no cells yet: call fit first"


class CountModel:
    """A model of cells: every molecule decays, and a network learns to bring them back.

    `labels` names columns of obs that the model is conditioned on. `library` says what becomes of the total of a cell:
    "generated" with the rest, or "conditioned" on, so that it can be chosen. What else is given are fields of
    `TrainConfig`, such as width=1024 or dropout=0.2.
    """

    def __init__(self, *, labels: str | Sequence[str] = (), library: str = "generated", **settings: Any) -> None:
        self.config = _settings(recipe("counts"), {"labels": labels, "library": library, **settings})
        self.genes: tuple[str, ...] = ()
        self._model: DiffusionModel | None = None
        self._covariates: Covariates | None = None

    def __repr__(self) -> str:
        if self._model is None:
            return "CountModel(not fitted)"
        return f"CountModel({len(self.genes)} genes, {len(self.classes)} classes, library {self.config.library})"

    @property
    def model(self) -> DiffusionModel:
        """The diffusion model inside."""
        if self._model is None:
            raise ValueError(_UNSEEN)
        return self._model

    @property
    def covariates(self) -> Covariates:
        """What the cells it has seen are conditioned on."""
        if self._covariates is None:
            raise ValueError(_UNSEEN)
        return self._covariates

    @property
    def keys(self) -> list[str]:
        """The columns of obs that it is conditioned on."""
        return _keys(self.config)

    @property
    def classes(self) -> list[str]:
        """What the labels mean; several columns are joined by " / "."""
        return list(self.covariates.classes)

    def fit(
        self,
        source: Any,
        *,
        out: str | Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
        empty: str = "refuse",
        **overrides: Any,
    ) -> "CountModel":
        """Train on cells: AnnData, a file, a DataFrame, a sparse or dense matrix; see `read_counts`.

        `overrides` are fields of `TrainConfig`, such as steps=5000 or layer="counts". With `out`, a run folder: the
        same call again, with the same cells, goes on from its last checkpoint. A fit that is refused leaves the model
        as it was.
        """
        config = _settings(self.config, overrides)
        cells = read_counts(source, layer=config.layer or None, empty=empty)
        return self.train(config, cells, None if out is None else Path(out), listener)

    def train(
        self,
        config: TrainConfig,
        cells: Counts,
        folder: Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
    ) -> "CountModel":
        """Train under a whole configuration."""
        from blackout.training.loop import Stopped

        new = CountModel()
        new.prepare(config, cells)
        try:
            new.train_prepared(cells, folder, listener)
        except Stopped:  # what was learnt until then is worth keeping
            vars(self).update(vars(new))
            raise
        vars(self).update(vars(new))
        return self

    def train_prepared(
        self,
        cells: Counts,
        folder: Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
    ) -> "CountModel":
        """Train the network that `prepare` made for these cells."""
        codes = self.covariates.codes(cells)
        if folder is not None:
            refuse_another(self.config, folder)
            begin_run(folder, {**self.describe(), "cells": fingerprint(cells, codes)})
        labels = self.covariates.labels(codes, cells.library)
        self.model.train(self.config, SparseRows(cells.x), labels, folder, listener)
        return self

    def prepare(self, config: TrainConfig, cells: Counts) -> None:
        """A new network for such cells, and what is known about them beside it."""
        from blackout.training.build import build_predictor, build_times

        if config.process != "pure-death" or config.max_count:
            got = f"process={config.process!r}, max_count={config.max_count}"
            raise ValueError(f"counts need process='pure-death' and max_count=0, for they have no largest, got {got}")
        config = dataclasses.replace(config, class_conditional=bool(config.labels))
        covariates = Covariates.of(cells, _keys(config), config.library == "conditioned")
        shape = torch.Size([cells.num_genes])
        predictor = build_predictor(config, shape, SparseRows(cells.x).statistics(), len(covariates.classes))
        times = build_times(config)
        self._model = DiffusionModel(
            PureDeath(), times, predictor.network, predictor.head, config.conditioning, tuple(shape)
        )
        self.config, self.genes, self._covariates = config, cells.genes, covariates

    def sample(
        self,
        num: int,
        *,
        label: str | Sequence[str] | None = None,
        guidance: float = 1.0,
        library: Any = None,
        num_steps: int = 100,
        sampler: Sampler | None = None,
        seed: int = 0,
        start_index: int = 0,
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> Any:
        """`num` new cells as AnnData. Cell number i depends on the seed, on i, its label and its library alone.

        `start_index` is the number of the first.
        `label` is a class for all cells, or one for each; by default labels come as often as in the training data.
        Cells drawn with `guidance=0` are of no class, whatever the label: their totals are those of all cells, and obs
        has no labels. `library` is a total, or one for each cell, for a model conditioned on it; by default totals are
        drawn too.
        """
        num, batch_size = validate.integer("num", num, 0), validate.integer("batch_size", batch_size, 1)
        start_index, num_steps = (
            validate.integer("start_index", start_index, 0),
            validate.integer("num_steps", num_steps, 1),
        )
        weight = self.covariates.guidance(guidance, self._free)
        chance = numpy.random.default_rng(validate.integer("seed", seed, 0)).random((start_index + num, 3))[
            start_index:
        ]
        codes = self.covariates.wanted(label, num, chance[:, 0])
        if not weight:
            codes = numpy.full(num, -1)
        totals = self.covariates.library(library, num, codes, chance[:, 1:])
        labels, parts = self.covariates.labels(codes, totals), []
        for start in range(0, max(1, num), batch_size):
            rows = slice(start, min(start + batch_size, num))
            drawn = self.model.sample(
                rows.stop - start, num_steps, sampler or TauLeaping(), seed, guidance=weight or 1.0,
                label=None if labels is None else labels[rows], start_index=start_index + start, batch_size=batch_size,
            )  # fmt: skip
            parts.append(sparse_counts(drawn))
            if callback is not None:
                callback(rows.stop, num)
        names = [f"cell_{start_index + k}" for k in range(num)]
        return to_anndata(stack(parts), self.genes, names, self.covariates.obs(codes, totals))

    def impute(
        self,
        source: Any,
        mask: Any = None,
        *,
        draws: int = 1,
        num_steps: int = 50,
        resample: int | None = None,
        seed: int = 0,
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> Any:
        """The cells with all counts filled in where `mask` is false; where it is true, they are known and kept.

        As AnnData with obs, var and the order of genes as they came; genes of the model that the cells lack are drawn
        for all of them and stand behind the others. What stands where the mask is false may be anything, such as NaN.
        A mask in a DataFrame is put in order by its names. Of several draws, layers "draw_1", ... hold each, "mean" and
        "std" what they say of every entry. A model conditioned on the library does without it here, since the total is
        not known, and a cell without a label is taken as one of no class.
        """
        model = self.model
        known = source if isinstance(source, KnownCounts) else read_known(source, mask, layer=self.config.layer or None)
        labels = self.covariates.labels(self.covariates.codes(known.cells, self._free), None)
        return impute(
            model, self.genes, known, labels, draws=draws, num_steps=num_steps, resample=resample, seed=seed,
            batch_size=batch_size, callback=callback,
        )  # fmt: skip

    def bits_per_dim(
        self,
        source: Any,
        seed: int = 0,
        *,
        num_times: int = 32,
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> BitsPerDim:
        """Bits for each entry of the cells, given their labels: the exact bound, with its standard error.

        A cell without a label is coded as one of no class, if the model was trained with some labels hidden. A total
        that is conditioned on is coded first, -log2 P(total), so that both kinds of model can be compared.
        """
        cells, batch_size = self.ordered(self._counts(source)), validate.integer("batch_size", batch_size, 1)
        parts = []
        for start in range(0, len(cells), batch_size):
            part = slice(start, min(start + batch_size, len(cells)))
            parts.append(self.bits_of_each(cells.take(part), seed, num_times=num_times, start_index=start))
            if callback is not None:
                callback(part.stop, len(cells))
        return BitsPerDim.mean_of(torch.cat(parts))

    def bits_of_each(self, source: Any, seed: int = 0, *, num_times: int = 32, start_index: int = 0) -> Tensor:
        """Bits for each entry of every single cell, all at a time; `start_index` is the number of the first."""
        cells = self.ordered(self._counts(source))
        codes = self.covariates.codes(cells, self._free)
        labels = self.covariates.labels(codes, cells.library)
        label = None if labels is None else labels.to(self.model.device)
        x = SparseRows(cells.x)[:].long()
        bits = self.model.bits_of_each(x, seed, num_times=num_times, start_index=start_index, label=label)
        if self.covariates.conditioned:
            bits = bits + torch.from_numpy(self.covariates.totals.bits(cells.library, codes)) / len(self.genes)
        return bits

    def to(self, device: torch.device | str) -> "CountModel":
        self.model.to(device)
        return self

    def walk_by(self, measure: str) -> "CountModel":
        """Draw cells at equal steps of a measure from now on: `DiffusionModel.walk_by`."""
        self._model = copy.copy(self.model).walk_by(measure)
        return self

    def save(self, folder: str | Path) -> Path:
        """The weights as safetensors, the rest as JSON."""
        folder = self.model.save(folder)
        write_description(folder, {**self.describe(), "config": dataclasses.asdict(self.config)})
        return folder

    @staticmethod
    def load(folder: str | Path) -> "CountModel":
        """A model from the folder it was saved in, or from a run folder. It is fitted again as it was before."""
        folder, result = Path(folder), CountModel()
        values = read_description(folder)
        try:
            result.genes, result._covariates = tuple(values["genes"]), Covariates.from_dict(values)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / CELLS} does not describe a model of counts: {error}") from None
        result._model = load_folder(folder)
        if result._model.shape != (len(result.genes),):
            shape = result._model.shape
            raise ValueError(f"{folder / CELLS} names {len(result.genes)} genes for a model of shape {shape}")
        network = result._model.predictor.network.config
        assert isinstance(network, MLPConfig)
        result.config = saved_config(folder, values, network)
        return result

    def describe(self) -> dict[str, Any]:
        """All that is known beside the network, as plain JSON."""
        about = self.covariates.as_dict()
        return {"format": FORMAT, "layer": self.config.layer, "genes": list(self.genes), **about}

    def _counts(self, source: Any) -> Counts:
        """Cells to look at, from the layer that the model was trained on, or from X where there is none."""
        self.model  # noqa: B018 - a model without one says so
        return read_counts(source, layer=self.config.layer or None, strict=False, empty="keep")

    @property
    def _free(self) -> bool:
        """Whether it has seen cells without a label."""
        return self.config.label_dropout > 0

    def has_learnt(self, cells: Counts, run: Path) -> bool:
        """Whether these are, one by one, the cells that a run was trained on."""
        try:
            return bool(read_description(run).get("cells") == fingerprint(cells, self.covariates.codes(cells)))
        except ValueError:  # without the run's labels they are other cells
            return False

    def ordered(self, cells: Counts) -> Counts:
        """Cells with the genes of the model, in its order."""
        return cells.with_all(self.genes)


def _keys(config: TrainConfig) -> list[str]:
    return [key for key in config.labels.split(",") if key]


def _settings(config: TrainConfig, values: dict[str, Any]) -> TrainConfig:
    """The configuration with other values, as a caller gives them: labels one by one, and no layer as None."""
    if "labels" in values:
        labels = () if values["labels"] is None else values["labels"]
        keys = [labels] if isinstance(labels, str) or not isinstance(labels, Iterable) else list(labels)
        wrong = [key for key in keys if not isinstance(key, str) or "," in key]
        if wrong:
            raise ValueError(f"labels must name columns of obs, without commas, got {wrong[0]!r}")
        values = {**values, "labels": ",".join(key for key in keys if key)}
    if "layer" in values:
        values = {**values, "layer": values["layer"] or ""}
    config = changed(config, values)
    return dataclasses.replace(config, class_conditional=bool(config.labels))
