"""Imputation of cells: what is not known of them, drawn given what is."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.counts import stack
from blackout.cells.observed import KnownCounts
from blackout.cells.table import few, optional
from blackout.data import SparseRows
from blackout.model import DiffusionModel
from blackout.sampling import TauLeaping
from blackout.training.batches import mix

_PURPOSE = 5  # of mixed seeds: further draws


def impute(
    model: DiffusionModel,
    genes: Sequence[str],
    known: KnownCounts,
    labels: Tensor | None,
    *,
    draws: int,
    num_steps: int,
    resample: int | None,
    seed: int,
    batch_size: int,
    callback: Callable[[int, int], None] | None,
) -> Any:
    """AnnData with the genes of the cells as they came, then those of the model that they lack."""
    draws, batch_size = validate.integer("draws", draws, 1), validate.integer("batch_size", batch_size, 1)
    num_steps, seed = validate.integer("num_steps", num_steps, 1), validate.integer("seed", seed, 0)
    names, place = _places(genes, known)
    rows, mask = _in_model_order(place, known, len(names))
    # The first draw has the seed itself; those of another seed are no further draws of this one.
    seeds = [seed, *(mix(seed, k, _PURPOSE) for k in range(1, draws))]
    filled: list[list[Any]] = [[] for _ in seeds]
    for start in range(0, len(mask), batch_size):
        part = slice(start, min(start + batch_size, len(mask)))
        kept = torch.from_numpy(mask[part])
        states = rows[part].long()
        label = None if labels is None else labels[part]
        for parts, own in zip(filled, seeds, strict=True):
            drawn = _draw(model, states, kept, num_steps, own, resample, label=label, start_index=start)
            parts.append(_moved(sparse_counts(drawn), place, len(names)))
        if callback is not None:
            callback(part.stop, len(mask))
    return _result([stack(parts) for parts in filled], names, known)


def _places(genes: Sequence[str], known: KnownCounts) -> tuple[list[str], NDArray[Any]]:
    """The genes of the result, and the column there of each gene of the model."""
    cells, own = known.cells, set(genes)
    counted = numpy.isin(numpy.arange(cells.num_genes), cells.x.indices) | ~known.mask.all(0)
    unseen = [gene for gene, wanted in zip(cells.genes, counted, strict=True) if wanted and gene not in own]
    if unseen:
        raise ValueError(f"the model has not seen these genes: {few(unseen)}; keep its own, adata[:, model.genes]")
    column = {gene: k for k, gene in enumerate(cells.genes)}
    names = [*cells.genes, *(gene for gene in genes if gene not in column)]
    column = {gene: k for k, gene in enumerate(names)}
    return names, numpy.array([column[gene] for gene in genes])


def _in_model_order(place: NDArray[Any], known: KnownCounts, width: int) -> tuple[SparseRows, NDArray[numpy.bool_]]:
    """Counts and mask with the genes of the model; one that the cells lack is known of none of them."""
    there = place < known.cells.num_genes
    mask = numpy.zeros((len(known.mask), len(place)), bool)
    mask[:, there] = known.mask[:, place[there]]
    back = numpy.full(width, -1)
    back[place] = numpy.arange(len(place))
    return SparseRows(_moved(known.cells.x, back, len(place))), mask


def _moved(x: Any, target: NDArray[Any], width: int) -> Any:
    """The columns of a sparse matrix at other places; a place below zero is none."""
    from scipy import sparse

    entries = x.tocoo()
    columns = target[entries.col]
    kept = columns >= 0
    places = entries.row[kept], columns[kept]
    moved = sparse.csr_array((entries.data[kept], places), shape=(x.shape[0], width))
    moved.sort_indices()
    return moved


def _draw(
    model: DiffusionModel,
    states: Tensor,
    kept: Tensor,
    num_steps: int,
    seed: int,
    resample: int | None,
    **options: Any,
) -> Tensor:
    """Of a cell of which nothing is known, a new one is drawn, whatever is known of the others in its batch."""
    if bool(kept.all()):
        return states
    nothing, batch_size, leaps = ~kept.any(1), max(1, len(states)), TauLeaping()
    drawn = states
    if not bool(nothing.all()):
        given: dict[str, Any] = {"known": states, "mask": kept, "resample": resample}
        drawn = model.sample(len(states), num_steps, leaps, seed, batch_size=batch_size, **given, **options).cpu()
    if bool(nothing.any()):
        new = model.sample(len(states), num_steps, leaps, seed, batch_size=batch_size, **options).cpu()
        drawn = torch.where(nothing.unsqueeze(1), new, drawn)
    return drawn


def _result(stacks: list[Any], names: list[str], known: KnownCounts) -> Any:
    from scipy import sparse

    anndata = optional("anndata", "imputation")
    var = known.var
    if len(names) > len(var):  # a whole number or a truth value cannot be missing otherwise
        kinds = {"b": "boolean", "i": "Int64", "u": "UInt64"}
        var = var.astype({key: kinds[kind.kind] for key, kind in var.dtypes.items() if kind.kind in kinds})
        var = var.reindex(names)
    result = anndata.AnnData(X=sparse.csr_matrix(stacks[0]), obs=known.obs, var=var)
    if len(stacks) > 1:
        result.layers.update({f"draw_{k + 1}": sparse.csr_matrix(drawn) for k, drawn in enumerate(stacks)})
        mean = (sum(drawn.astype(numpy.float64) for drawn in stacks) / len(stacks)).tocsr()
        square = sum((drawn - mean).power(2) for drawn in stacks) / (len(stacks) - 1)
        result.layers["mean"] = sparse.csr_matrix(mean)
        result.layers["std"] = sparse.csr_matrix(square.sqrt())
    return result


def sparse_counts(x: Tensor) -> Any:
    """Drawn states as AnnData holds counts."""
    from scipy import sparse

    return sparse.csr_matrix(x.cpu().numpy().astype(numpy.int32))
