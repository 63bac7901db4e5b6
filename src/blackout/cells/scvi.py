"""scVI as a baseline: Lopez et al. 2018, by the package scvi-tools of its authors (extra `scvi`)."""

import copy
from typing import Any, Self

import numpy
import scipy.sparse
import torch

from blackout import validate
from blackout.cells.baselines import Baseline, bits, same_genes
from blackout.cells.library import log_mass
from blackout.cells.metrics import Floats, check_counts
from blackout.cells.names import optional

_BLOCK = 512  # cells decoded at once
_CLUSTERS = 20  # of the mixture prior
_ROUNDS = 3  # of imputation, each with the hidden counts of the one before
LATENTS = ("posterior", "prior", "mixture")


class ScVI(Baseline):
    """A variational autoencoder with a zero-inflated ("zinb", its default) or negative binomial ("nb") likelihood.

    Parameters
    ----------
    latent
        Where z of a sample is from: "prior" is N(0, 1), "mixture" a Gaussian mixture of 20 components fitted to the
        posterior draws of the training cells (scVI itself has no such prior), each with the library size of a random
        training cell. "posterior" takes both from one training cell: noisy copies, an easier task.
    epochs
        By default as many as the package chooses: 400 up to 20,000 cells, fewer for more.
    draws
        Draws of z for the bits of a cell.
    """

    def __init__(
        self,
        likelihood: str = "zinb",
        latent: str = "posterior",
        *,
        epochs: int | None = None,
        draws: int = 100,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.likelihood = validate.choice("likelihood", likelihood, ("nb", "zinb"))
        self.latent = validate.choice("latent", latent, LATENTS)
        self.epochs = None if epochs is None else validate.integer("epochs", epochs, 1)
        self.draws = validate.integer("draws", draws, 1)
        self.device, self.seed = validate.device(device), validate.integer("seed", seed, 0)
        self._model: Any = None

    def variants(self) -> dict[str, Baseline]:
        """The same network with every source of z."""
        found = {}
        for latent in LATENTS:
            found[f"_{latent}"] = other = copy.copy(self)
            other.latent = latent
        return dict(found)

    def fit(self, x: Any, labels: Any = None) -> Self:
        """Labels are scVI's batches. The package seeds all global generators; that of torch is restored."""
        x = check_counts("x", x)
        package = optional("scvi", "ScVI", "scvi")
        # Without labels there is one batch, whose name puts held-out cells into it too.
        labels = numpy.zeros(x.shape[0], int) if labels is None else numpy.asarray(labels)
        if labels.shape != (x.shape[0],):
            raise ValueError(f"labels must be one for each of the {x.shape[0]} cells, got shape {labels.shape}")
        kinds, batch = numpy.unique(labels, return_inverse=True)
        cells = _annotated(x, batch)
        with torch.random.fork_rng():
            package.settings.seed = self.seed
            package.model.SCVI.setup_anndata(cells, batch_key="batch")
            self._model = package.model.SCVI(cells, gene_likelihood=self.likelihood)
            accelerator = "gpu" if self.device.type == "cuda" else self.device.type
            self._model.train(max_epochs=self.epochs, accelerator=accelerator, enable_progress_bar=False)
            self._model.to_device("cpu")
            self._model.module.eval()
            self._mean, self._variance = self._model.get_latent_representation(return_dist=True)
        self._mixture = self._fit_mixture()
        self._totals, self._batch, self._num_batches = numpy.maximum(x.sum(1), 1), batch, len(kinds)
        self._genes = x.shape[1]
        logs = numpy.log(self._totals)
        self._library = float(logs.mean()), float(max(logs.std(), 1e-3))
        return self

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
        cell = rng.integers(len(self._totals), size=validate.integer("n", n, 1))
        z = self._sample_latent(rng, cell)
        parts = []
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.default_generator.manual_seed(seed)
            for i in range(0, n, _BLOCK):
                own = cell[i : i + _BLOCK]
                counts = self._model.module.generative(
                    torch.from_numpy(z[i : i + _BLOCK]).float(),
                    torch.from_numpy(numpy.log(self._totals[own])).float()[:, None],
                    torch.from_numpy(self._batch[own])[:, None],
                )["px"]
                parts.append(scipy.sparse.csr_array(counts.sample().numpy().astype(numpy.int64)))
        return scipy.sparse.vstack(parts, format="csr")

    def _sample_latent(self, rng: numpy.random.Generator, cell: Any) -> Floats:
        """z of samples, (cells, latent); `cell` are the training cells that give the library sizes."""
        z = rng.standard_normal((len(cell), self._mean.shape[1]))
        if self.latent == "posterior":
            return numpy.asarray(self._mean[cell] + numpy.sqrt(self._variance[cell]) * z)
        if self.latent == "mixture":
            weights = self._mixture.weights_ / self._mixture.weights_.sum()
            part = rng.choice(len(weights), size=len(cell), p=weights)
            factors = numpy.linalg.cholesky(self._mixture.covariances_)
            return numpy.asarray(self._mixture.means_[part] + numpy.einsum("nij,nj->ni", factors[part], z))
        return z

    def _fit_mixture(self) -> Any:
        mixture = optional("sklearn.mixture", "ScVI", "scvi").GaussianMixture
        rng = numpy.random.default_rng(self.seed)
        z = self._mean + numpy.sqrt(self._variance) * rng.standard_normal(self._mean.shape)
        return mixture(min(_CLUSTERS, len(z)), reg_covar=1e-3, random_state=self.seed).fit(z)

    def impute(self, x: Any, observed: Any) -> Floats:
        """The denoised mean of every count, where hidden ones are first zero and then what was imputed before."""
        filled = known = numpy.where(observed, x, 0).astype(numpy.float64)
        for _ in range(_ROUNDS):
            cells = _annotated(scipy.sparse.csr_array(filled), numpy.zeros(len(known), int))
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self.seed)
                share = self._model.get_normalized_expression(cells, n_samples=10, return_numpy=True)
            seen = numpy.maximum((share * observed).sum(1), 1e-12)
            filled = numpy.where(observed, known, share * (known.sum(1) / seen)[:, None])
        return filled

    def bits_per_dim(self, x: Any) -> tuple[float, float] | None:
        """By importance sampling with `draws` of z, an upper bound on average; None if fitted with labels.

        scVI conditions on the library size, which is coded first, as a log-normal number rounded down.
        """
        if self._num_batches > 1:
            return None
        x = same_genes(self._genes, x)
        cells = _annotated(x, numpy.zeros(x.shape[0], int))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            found = self._model.get_marginal_ll(
                cells, n_mc_samples=self.draws, n_mc_samples_per_pass=1, batch_size=_BLOCK, return_mean=False
            )
        return bits(found.double().numpy() - code_length(x.sum(1), *self._library), x.shape[1])


def _annotated(x: scipy.sparse.csr_array, batch: Any) -> Any:
    cells = optional("anndata", "ScVI").AnnData(scipy.sparse.csr_matrix(x, dtype=numpy.float32))
    cells.obs_names = [str(i) for i in range(x.shape[0])]
    cells.obs["batch"] = [str(i) for i in batch]
    return cells


def code_length(totals: Floats, mean: float, deviation: float) -> Floats:
    """-log P of integers that are log-normal numbers rounded down."""
    low = numpy.where(totals > 0, (numpy.log(numpy.maximum(totals, 1)) - mean) / deviation, -numpy.inf)
    return -log_mass(low, (numpy.log(totals + 1) - mean) / deviation)
