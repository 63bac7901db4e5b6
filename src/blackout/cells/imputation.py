"""Imputation: the posterior means of the unobserved counts of cells, and draws of them, given the observed counts."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from blackout import validate
from blackout.cells.counts import MAX_COUNT, check_genes
from blackout.cells.names import optional
from blackout.cells.observed import ObservedCounts, read_observed
from blackout.cells.sampling import sparse_counts
from blackout.data import SparseRows
from blackout.memory import check_memory
from blackout.model import DiffusionModel
from blackout.network.head import Observation
from blackout.random import mix
from blackout.sampling import TauLeaping

if TYPE_CHECKING:
    from blackout.cells.model import CountModel

_PURPOSE = 5  # of mixed seeds: further draws
_EARLY = math.log1p(math.exp(-4.0))  # a time at which 98 % of the molecules are left: observed counts are almost X_0


@dataclass(frozen=True)
class Imputation:
    """Cells to be imputed, the genes of the result, and its blocks: matrices by "X" or the name of a layer."""

    given: ObservedCounts
    obs: Any
    var: Any
    blocks: Iterator[dict[str, Any]]
    draws: int

    def share(self) -> float:
        """Share of the counts of the result that is imputed."""
        return 1 - self.given.num_observed / (len(self.obs) * len(self.var))

    def to_anndata(self) -> Any:
        """All blocks, in memory; ValueError if they do not fit."""
        hidden = self.share() * len(self.obs) * len(self.var)
        # Draws with a count in one of ten unobserved entries, and means in all of them, each twice.
        size = 200.0 * len(self.obs) + hidden * (2 * 2.4 * self.draws + 16)
        advice = "use fewer draws or cells, or blackout cells impute, which writes an .h5ad file block by block"
        check_memory(f"draws={self.draws:,} imputations of {len(self.obs):,} cells", size, advice)
        parts: dict[str, list[Any]] = {}
        for block in self.blocks:
            for name, matrix in block.items():
                parts.setdefault(name, []).append(matrix)
        whole = {name: sparse.vstack(matrices, format="csr") for name, matrices in parts.items()}
        anndata = optional("anndata", "imputation")
        return anndata.AnnData(X=whole.pop("X"), obs=self.obs, var=self.var, layers=whole)


def imputation(
    model: "CountModel",
    source: Any,
    mask: Any = None,
    *,
    layer: str | None = None,
    transpose: bool = False,
    draws: int,
    num_steps: int,
    resample: int | None,
    seed: int,
    batch_size: int,
    callback: Callable[[int, int], None] | None,
) -> Imputation:
    """The result of `CountModel.impute` with these arguments, computed block by block when it is asked for.

    Its genes are those of the cells in their order, and those of the model that they lack. `layer` is by default that
    of the model, if the cells have it.
    """
    draws, batch_size = validate.integer("draws", draws, 0), validate.integer("batch_size", batch_size, 1)
    num_steps, seed = validate.integer("num_steps", num_steps, 1), validate.integer("seed", seed, 0)
    inner, given = model.model, _given(model, source, mask, layer, transpose)
    means = inner.predictor.head.finite_bound  # then y is (1 - p) times a mean, for which p = 0 stands for "hidden"
    if not draws and not means:
        raise ValueError("draws must be at least 1 for head='softplus', which has no means of hidden counts, got 0")
    # The library size is not observed.
    labels = model.covariates.encode(model.covariates.read(given.cells, model.config.allow_unlabelled), None)
    names, to_model = _selection(model.genes, given)
    own = to_model[: given.cells.num_genes]
    # The first draw has the seed itself; the others are not those of another seed.
    seeds = [seed, *(mix(seed, k, _PURPOSE) for k in range(1, draws))][:draws]

    def blocks() -> Iterator[dict[str, Any]]:
        number = len(given.cells)
        for start in range(0, number, batch_size):
            part = slice(start, min(start + batch_size, number))
            # A gene that the data lack is unobserved.
            observed = torch.from_numpy(given.observed(part) @ own.astype(bool))
            states = SparseRows(given.cells.x[part].tocsr() @ own)[:].long()
            label = None if labels is None else labels[part]
            mean = sparse.csr_array(_means(inner, states, observed, label).numpy()) @ to_model.T if means else None
            options: dict[str, Any] = {"label": label, "start_index": start}
            drawn = [_draw(inner, states, observed, num_steps, seed, resample, **options) for seed in seeds]
            if callback is not None:
                callback(part.stop, number)
            yield _layers([_checked((sparse_counts(x) @ to_model.T).tocsr()) for x in drawn], mean)

    return Imputation(given, *_frames(names, given), blocks(), draws)


def _given(model: "CountModel", source: Any, mask: Any, layer: str | None, transpose: bool) -> ObservedCounts:
    if isinstance(source, ObservedCounts):
        if mask is not None:
            raise ValueError(f"mask must be None for ObservedCounts, which have one, got {validate.short(mask)}")
        return source
    given = read_observed(source, mask, transpose=transpose, **model.config.reading(layer))
    if mask is None and set(model.genes) <= set(given.cells.genes):
        raise ValueError("mask is needed for cells with all genes of the model: true where a count is observed")
    return given


def _means(model: DiffusionModel, states: Tensor, observed: Tensor, label: Tensor | None) -> Tensor:
    """E[X_0 | observed counts], float32, by one call of the network, with the unobserved genes hidden.

    No mean exceeds the library size of its cell, estimated from the observed genes and their share of all counts.
    """
    device, hidden = model.device, ~observed.to(model.device)
    xt = states.to(device).masked_fill(hidden, 0)
    # A cell of which nothing is observed is one at the last time.
    t = torch.where(observed.any(1), _EARLY, float(model.times.t_end)).double()
    with torch.no_grad():
        label = None if label is None else label.to(device)
        y = model.predictor.posterior(xt, t.to(device), label, hidden).difference().float()
    of_genes = model.predictor.head.get_buffer("mean")
    share = (of_genes * ~hidden).sum(1) / of_genes.sum()
    library = torch.where(share > 0, xt.sum(1).float() / share.clamp(min=1e-6), math.inf)
    library = library.clamp(min=1.0).unsqueeze(1)
    return torch.where(hidden, torch.minimum(y, library), xt.float()).cpu()


def features(model: DiffusionModel, rows: SparseRows, labels: Tensor | None, batch_size: int) -> NDArray[numpy.float32]:
    """The network's last hidden layer for fully observed cells, shape (cells, width)."""
    parts = []
    for start in range(0, len(rows), validate.integer("batch_size", batch_size, 1)):
        x = rows[slice(start, start + batch_size)].to(model.device)
        t = torch.full((len(x),), _EARLY, dtype=torch.float64, device=model.device)
        label = None if labels is None else labels[start : start + batch_size].to(model.device)
        with torch.no_grad():
            found = model.predictor.features(Observation(model.process, x, t, label=label))
        if start == 0:  # float32, twice
            size = 8.0 * len(rows) * found.shape[1]
            check_memory(f"a representation of {len(rows):,} cells", size, "give fewer cells at once")
        parts.append(found.float().cpu())
    return torch.cat(parts).numpy()


def _selection(genes: Sequence[str], given: ObservedCounts) -> tuple[list[str], Any]:
    """The genes of the result, and the matrix (genes of the result, genes of the model) that selects the latter."""
    cells, own = given.cells, set(genes)
    needed = cells.detected()[1]
    if given.mask is not None:
        needed |= ~given.mask.all(0)
    check_genes([gene for gene, wanted in zip(cells.genes, needed, strict=True) if wanted and gene not in own])
    present = set(cells.genes)
    names = [*cells.genes, *(gene for gene in genes if gene not in present)]
    row = {gene: k for k, gene in enumerate(names)}
    entries = numpy.ones(len(genes), numpy.int32), ([row[gene] for gene in genes], numpy.arange(len(genes)))
    return names, sparse.csr_array(entries, shape=(len(names), len(genes)))


def _draw(
    model: DiffusionModel,
    states: Tensor,
    observed: Tensor,
    num_steps: int,
    seed: int,
    resample: int | None,
    **options: Any,
) -> Tensor:
    """One draw. A cell without observed counts is sampled without inpainting, whatever the others in its batch have."""
    if bool(observed.all()):
        return states
    none, leaping = ~observed.any(1), TauLeaping()
    options |= {"batch_size": max(1, len(states)), "progress": False}
    sampled = states
    if not bool(none.all()):
        inpainted: dict[str, Any] = {"observed": states, "mask": observed, "resample": resample}
        sampled = model.sample(len(states), num_steps, leaping, seed, **inpainted, **options).cpu()
    if bool(none.any()):
        new = model.sample(len(states), num_steps, leaping, seed, **options).cpu()
        sampled = torch.where(none.unsqueeze(1), new, sampled)
    return sampled


def _frames(names: list[str], given: ObservedCounts) -> tuple[Any, Any]:
    """obs and var of the result."""
    pandas = optional("pandas", "imputation")
    obs, var = given.cells.obs, given.var
    if len(names) > len(var):  # numpy's integers and booleans cannot be missing, pandas' can
        nullable = {"b": "boolean", "i": "Int64", "u": "UInt64"}
        var = var.astype({key: nullable[kind.kind] for key, kind in var.dtypes.items() if kind.kind in nullable})
        var = var.reindex(names)
    return pandas.DataFrame(index=list(given.cells.cells)) if obs is None else obs, var


def _layers(counts: list[Any], mean: Any) -> dict[str, Any]:
    """The matrices of some cells: X, and the layers of means and of several draws."""
    result = {"X": sparse.csr_matrix(counts[0] if counts else mean)}
    if mean is not None:
        result["mean"] = sparse.csr_matrix(mean)
    if len(counts) > 1:
        result |= {f"draw_{k + 1}": sparse.csr_matrix(draw) for k, draw in enumerate(counts)}
        centre = sum(draw.astype(numpy.float64) for draw in counts) / len(counts)
        square = sum((draw - centre).power(2) for draw in counts) / (len(counts) - 1)
        result["std"] = sparse.csr_matrix(square.sqrt())
    return result


def _checked(draw: Any) -> Any:
    """Counts as int32, the type of AnnData; ValueError if one is too large."""
    largest: NDArray[Any] = draw.data.max(initial=0)
    if largest > MAX_COUNT:
        raise ValueError(f"counts must be at most {MAX_COUNT}, but a draw holds {largest}")
    return draw.astype(numpy.int32)
