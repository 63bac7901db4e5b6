"""scVI as a generator of cells: Lopez et al. 2018, by its authors' package scvi-tools, which an extra installs."""

from typing import Any, Self

import numpy
import scipy.sparse
import torch

from blackout import validate
from blackout.cells.baselines import CellGenerator, bits, code_length, same_genes
from blackout.cells.metrics import counts
from blackout.evaluation.features import optional

_BLOCK = 512  # cells decoded at once


class ScVI(CellGenerator):
    """A variational autoencoder with negative binomials, "nb", or zero-inflated ones, "zinb".

    latent="prior" draws z from N(0, 1) and the library of some training cell. latent="training" draws both from one
    training cell, z from its posterior. That reconstructs cells which were seen, and is an easier game.
    """

    def __init__(
        self,
        likelihood: str = "nb",
        latent: str = "prior",
        *,
        epochs: int = 100,
        draws: int = 100,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.likelihood = validate.choice("likelihood", likelihood, ("nb", "zinb"))
        self.latent = validate.choice("latent", latent, ("prior", "training"))
        self.epochs, self.draws = validate.integer("epochs", epochs, 1), validate.integer("draws", draws, 1)
        self.device, self.seed = validate.device(device), validate.integer("seed", seed, 0)
        self._model: Any = None

    def fit(self, x: Any, labels: Any = None) -> Self:
        """Labels are scVI's batches. Its package seeds every global source of random numbers; torch's is put back."""
        x = counts("x", x)
        package, anndata = optional("scvi", "scvi"), optional("anndata", "scvi")
        # Without labels there is one batch; its name keeps held-out cells in the same one.
        labels = numpy.zeros(x.shape[0], int) if labels is None else numpy.asarray(labels)
        if labels.shape != (x.shape[0],):
            raise ValueError(f"labels must be one for each of the {x.shape[0]} cells, got shape {labels.shape}")
        kinds, batch = numpy.unique(labels, return_inverse=True)
        cells = _annotated(anndata, x, batch)
        with torch.random.fork_rng():
            package.settings.seed = self.seed
            package.model.SCVI.setup_anndata(cells, batch_key="batch")
            self._model = package.model.SCVI(cells, gene_likelihood=self.likelihood)
            accelerator = "gpu" if self.device.type == "cuda" else self.device.type
            self._model.train(max_epochs=self.epochs, accelerator=accelerator, enable_progress_bar=False)
            self._model.to_device("cpu")
            self._model.module.eval()
            self._mean, self._variance = self._model.get_latent_representation(return_dist=True)
        self._totals, self._batch, self._num_batches = numpy.maximum(x.sum(1), 1), batch, len(kinds)
        self._genes = x.shape[1]
        logs = numpy.log(self._totals)
        self._library = float(logs.mean()), float(max(logs.std(), 1e-3))
        return self

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
        cell = rng.integers(len(self._totals), size=validate.integer("n", n, 1))
        z = rng.standard_normal((n, self._mean.shape[1]))
        if self.latent == "training":
            z = self._mean[cell] + numpy.sqrt(self._variance[cell]) * z
        parts = []
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.default_generator.manual_seed(seed)
            for i in range(0, n, _BLOCK):
                own = cell[i : i + _BLOCK]
                law = self._model.module.generative(
                    torch.from_numpy(z[i : i + _BLOCK]).float(),
                    torch.from_numpy(numpy.log(self._totals[own])).float()[:, None],
                    torch.from_numpy(self._batch[own])[:, None],
                )["px"]
                parts.append(scipy.sparse.csr_array(law.sample().numpy().astype(numpy.int64)))
        return scipy.sparse.vstack(parts, format="csr")

    def bits_per_dim(self, x: Any) -> tuple[float, float] | None:
        """By importance sampling with `draws` of z, which is too large on average; None if fitted with labels.

        scVI is given the library. It is coded first, by a log-normal law rounded down to whole numbers.
        """
        if self._num_batches > 1:
            return None
        x = same_genes(self._genes, x)
        cells = _annotated(optional("anndata", "scvi"), x, numpy.zeros(x.shape[0], int))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            found = self._model.get_marginal_ll(
                cells, n_mc_samples=self.draws, n_mc_samples_per_pass=1, batch_size=_BLOCK, return_mean=False
            )
        return bits(found.double().numpy() - code_length(x.sum(1), *self._library), x.shape[1])


def _annotated(anndata: Any, x: scipy.sparse.csr_array, batch: Any) -> Any:
    cells = anndata.AnnData(scipy.sparse.csr_matrix(x, dtype=numpy.float32))
    cells.obs_names = [str(i) for i in range(x.shape[0])]
    cells.obs["batch"] = [str(i) for i in batch]
    return cells
