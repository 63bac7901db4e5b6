"""CountModel: a diffusion model of raw counts of genes in cells."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import hub, validate
from blackout.bits import BitsPerDim, mean_bits
from blackout.cells import folder as folders
from blackout.cells.build import new_model
from blackout.cells.config import CellConfig
from blackout.cells.counts import Counts, warn_implausible
from blackout.cells.covariates import Covariates
from blackout.cells.imputation import features, imputation
from blackout.cells.read import read_counts
from blackout.cells.sampling import CellSamples
from blackout.data.sparse_rows import SparseRows
from blackout.model import DiffusionModel
from blackout.sampling import Sampler
from blackout.sampling.choice import Times
from blackout.training.folder import check_same_run
from blackout.training.saved import write_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from blackout.training.loop import Report, Trainer


class CountModel:
    """A generative model of cells under pure death: the counts of thousands of genes at once, without normalisation.

    Parameters
    ----------
    labels
        Columns of obs that the model is conditioned on, categories; combinations that no cell has can be sampled too.
    library
        Whether the library size (total count) of a cell is "generated" with it, or "conditioned" on and selectable.
    **settings
        Other fields of `CellConfig` and `TrainConfig`, such as batch_key="donor", continuous_covariate_keys=["age"],
        width=1024 or dropout=0.2.

    Examples
    --------
    >>> import numpy, blackout as bo
    >>> counts = numpy.random.default_rng(0).poisson(2.0, (64, 12))
    >>> model = bo.CountModel(width=16, blocks=1).fit(counts, steps=2)
    >>> model.sample(3, num_steps=2).shape
    (3, 12)
    """

    def __init__(self, *, labels: str | Sequence[str] = (), library: str = "generated", **settings: Any) -> None:
        self.config = CellConfig().replace(labels=labels, library=library, **settings)
        self.genes: tuple[str, ...] = ()
        self._reports: list[dict[str, Any]] = []
        self._model: DiffusionModel | None = None
        self._covariates: Covariates | None = None

    def __repr__(self) -> str:
        if self._model is None:
            return "CountModel(not fitted)"
        classes = "".join(f"{len(names)} values of {key}, " for key, names in self.classes.items())
        parts = f"{len(self.genes)} genes, {classes}library {self.config.library}"
        return f"CountModel({parts}, {self.model.ending})"

    @property
    def model(self) -> DiffusionModel:
        """The diffusion model of the counts."""
        if self._model is None:
            raise ValueError("the model is not fitted yet: call fit first")
        return self._model

    @property
    def covariates(self) -> Covariates:
        """Labels, batches, numbers and library sizes of the training cells."""
        if self._covariates is None:
            raise ValueError("the model is not fitted yet: call fit first")
        return self._covariates

    @property
    def classes(self) -> dict[str, list[str]]:
        """The values of each label column and of the batch, as text."""
        return {column.key: list(column.names) for column in self.covariates.columns}

    @property
    def history(self) -> Any:
        """Training by step, a DataFrame: loss, bits_per_dim (of batches), validation, learning_rate, seconds."""
        from blackout.cells.validation import history_frame

        return history_frame(self._reports)

    def plot_history(self) -> "Figure":
        """A figure of bits per dimension against the step, of the training batches and of the validation."""
        from blackout.cells.validation import plot_history

        return plot_history(self._reports)

    @staticmethod
    def for_cells(cells: Counts, config: CellConfig) -> "CountModel":
        """An untrained model for such cells, of a size that follows from theirs."""
        config = config.for_size(*cells.x.shape)
        covariates = Covariates.fit(cells, config)
        model = CountModel()
        model._model = new_model(cells, config, covariates)
        model.config, model.genes, model._covariates = config, cells.genes, covariates
        return model

    def fit(
        self,
        source: Any,
        *,
        validation: Any = None,
        out: str | Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
        empty: str = "error",
        backed: bool | None = None,
        **settings: Any,
    ) -> "CountModel":
        """Train a new network on cells. A fit that fails leaves the model as it was.

        Sizes and steps that are not given follow from the data. The best weights by validation are kept.

        Parameters
        ----------
        source, empty, backed
            AnnData, a file, a list of these, a DataFrame, a sparse or dense matrix; what to do with cells and genes
            without counts: "error", "drop" or "keep"; whether counts stay on the disk. See `read_counts`.
        validation
            Share of the cells, by default 0.1 (none of fewer than 200 cells, at most 256), or other cells; 0: none.
        out
            Run folder for checkpoints; the same call with the same cells resumes from the last one.
        listener
            Called with a `Report` and the `Trainer` every `log_every` steps.
        **settings
            Fields of `CellConfig` and `TrainConfig`, such as steps=5000 or layer="counts".
        """
        from blackout.training.signals import Stopped

        share = {"validation": validation} if isinstance(validation, int | float) else {}
        config = self.config.replace(**settings, **share)
        cells = read_counts(source, layer=config.layer or None, empty=empty, backed=backed)
        warn_implausible(cells)
        new = CountModel.for_cells(cells, config)
        other = None if validation is None or share else new.aligned(validation)
        try:
            new.train(cells, None if out is None else validate.path("out", out), listener, other)
        except Stopped:  # by a signal: the weights so far are kept
            vars(self).update(vars(new))
            raise
        vars(self).update(vars(new))
        return self

    def train(
        self,
        cells: Counts,
        folder: Path | None = None,
        listener: "Callable[[Report, Trainer], None] | None" = None,
        validation: Counts | None = None,
    ) -> "CountModel":
        """Train the network of a model that `for_cells` made for these cells; some are kept if none validate."""
        from blackout.cells.validation import train

        if folder is not None:
            self.check_run(cells, folder)
            folders.begin_run(folder, self.describe(), folders.fingerprint(cells, self.covariates))
        self._reports = train(self.model, self.config, self.covariates, cells, validation, folder, listener)
        return self

    def check_run(self, cells: Counts, folder: Path) -> None:
        """Raise ValueError if a folder holds a saved model, or a run with other settings or cells."""
        folders.check_run(folder, self.describe(), folders.fingerprint(cells, self.covariates))
        check_same_run(self.config.train, folder)

    def sample(
        self,
        num: int,
        *,
        label: Any = None,
        batch: Any = None,
        covariates: Any = None,
        guidance: float = 1.0,
        library: Any = None,
        num_steps: int | str = "auto",
        sampler: Sampler | str | None = None,
        times: Times = None,
        seed: int = 0,
        start_index: int = 0,
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> Any:
        """Sample new cells.

        Cell number i depends on the seed, on i, its labels, batch, covariates and library size alone. What is not given
        is as in the training cells: labels given the other labels, the batch given the labels, covariates given both.

        Parameters
        ----------
        label
            A class, or one for each cell; a dict of these, by column, for a model with several label columns. None in
            the place of a class is unknown.
        batch
            The value of the batch column, or one for each cell, such as a reference batch for all.
        covariates
            A number, or one for each cell; a dict of these, by column, for several continuous covariates.
        guidance
            Classifier-free guidance scale; 0 is the unconditional model, whose cells have no labels in obs.
        library
            One library size, or one for each cell, for a model conditioned on it; by default as in training.
        num_steps, sampler, times, seed, start_index
            As in `DiffusionModel.sample`; by default 64 steps of "poisson", tau-leaping.
        callback
            Called with the number of cells sampled so far and `num`.

        Returns
        -------
        anndata.AnnData
            X is a csr matrix of int32; obs has the labels, batch and covariates, and "library" for a model conditioned
            on it, which is kept.
        """
        samples = CellSamples(
            self, num, label=label, batch=batch, covariates=covariates, guidance=guidance, library=library,
            num_steps=num_steps, sampler=sampler, times=times, seed=seed, start_index=start_index,
        )  # fmt: skip
        return samples.to_anndata(samples.draw_all(batch_size, callback))

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
        """The unobserved counts of cells, given the observed ones, which are kept: posterior means and draws.

        A model conditioned on the library size imputes without it, since it is not observed; cells without a label are
        cells of no class.

        Parameters
        ----------
        source, mask
            The cells, and a mask that is true where a count is observed, see `read_observed`; None: genes are missing.
        draws, num_steps, resample
            Possible counts of each cell (0: posterior means alone, by one call of the network), sampling steps of each,
            and how often each step is repeated.

        Returns
        -------
        anndata.AnnData
            obs, var and the order of the genes as in `source`; genes of the model that it lacks are appended. The layer
            "mean" holds the posterior means, X the first draw, or the means if `draws` is 0. Several draws are in the
            layers "draw_1", ..., with their standard deviation in "std".
        """
        return imputation(
            self, source, mask, draws=draws, num_steps=num_steps, resample=resample, seed=seed,
            batch_size=batch_size, callback=callback,
        ).to_anndata()  # fmt: skip

    def bits_per_dim(
        self,
        source: Any,
        seed: int = 0,
        *,
        num_times: int = 32,
        bound: str = "auto",
        batch_size: int = 256,
        callback: Callable[[int, int], None] | None = None,
    ) -> BitsPerDim:
        """The evidence bound of cells given their labels, in bits per count, with its standard error.

        `bound` is as in `DiffusionModel.bits_per_dim`. A cell without a label is coded as one of no class. For a model
        conditioned on the library size, its cost -log2 P(library size) is included, so that models can be compared.
        """
        cells, kind = self.aligned(source), self.model.bound_kind(bound)
        each = partial(self.bits_of_each, seed=seed, num_times=num_times, bound=kind)
        return mean_bits(
            lambda rows: each(cells.take(rows), start_index=rows.start), len(cells), kind, batch_size, callback
        )

    def bits_of_each(self, source: Any, seed: int = 0, **options: Any) -> Tensor:
        """The same for each cell, shape (cells,), all at once; `options` as in `DiffusionModel.bits_of_each`."""
        cells = self.aligned(source)
        rows = self.covariates.read(cells, self.config.allow_unlabelled)
        label = self.covariates.encode(rows, cells.library)
        bits = self.model.bits_of_each(SparseRows(cells.x)[:].long(), seed, label=label, **options)
        if self.covariates.sizes is not None:
            bits = bits + torch.from_numpy(self.covariates.sizes.bits(cells.library, rows.codes)) / len(self.genes)
        return bits

    def get_latent_representation(self, source: Any, *, batch_size: int = 256) -> NDArray[numpy.float32]:
        """The last hidden layer of the network for each cell, (cells, width), for `adata.obsm`, neighbours and UMAP."""
        cells = self.aligned(source)
        label = self.covariates.encode_cells(cells, self.config.allow_unlabelled)
        return features(self.model, SparseRows(cells.x), label, batch_size)

    def to(self, device: torch.device | str) -> "CountModel":
        self.model.to(device)
        return self

    def save(self, folder: str | Path) -> Path:
        """Write the weights as safetensors and the rest as JSON, atomically: see `DiffusionModel.save`."""
        description = {**self.model.config(), "cells": {**self.describe(), "history": self._reports}}
        return write_model(
            validate.path("folder", folder), description, self.model.predictor.state_dict(), torch.float32
        )

    push_to_hub = hub.push_to_hub

    @staticmethod
    def from_pretrained(repo: str) -> "CountModel":
        """Load a model from the Hugging Face Hub: ``user/name``, or ``user/name@revision``."""
        return CountModel.load(hub.PREFIX + repo)

    @staticmethod
    def load(folder: str | Path) -> "CountModel":
        """Load a model from the folder of `save`, a run folder, or the Hub, ``hf://user/name``, as it was trained."""
        folder, model = validate.path("folder", hub.local(folder)), CountModel()
        model._model, model.config, model.genes, model._covariates, model._reports = folders.load(folder)
        return model

    def describe(self) -> dict[str, Any]:
        """All but the network, as plain JSON."""
        return folders.describe(self.config, self.genes, self.covariates)

    def with_network(self, model: DiffusionModel) -> "CountModel":
        """The same model of cells with another network."""
        other = copy.copy(self)
        other._model, other._reports = model, []
        return other

    def aligned(self, source: Any) -> Counts:
        """Cells with the genes of the model, from its layer, or from X where there is none."""
        self.model  # noqa: B018 - raises if not fitted
        cells = read_counts(source, empty="keep", **self.config.reading())
        return cells.align(self.genes)
