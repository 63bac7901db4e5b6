"""Imputation: sampling of the unobserved counts of cells, given the observed ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.cells.counts import check_genes, stack
from blackout.cells.names import optional
from blackout.cells.observed import ObservedCounts
from blackout.cells.sampling import sparse_counts
from blackout.data import SparseRows
from blackout.model import DiffusionModel
from blackout.random import mix
from blackout.sampling import TauLeaping

_PURPOSE = 5  # of mixed seeds: further draws


def impute(
    model: DiffusionModel,
    genes: Sequence[str],
    given: ObservedCounts,
    labels: Tensor | None,
    *,
    draws: int,
    num_steps: int,
    resample: int | None,
    seed: int,
    batch_size: int,
    callback: Callable[[int, int], None] | None,
) -> Any:
    """AnnData with the genes of the cells in their order, followed by those of the model that they lack."""
    draws, batch_size = validate.integer("draws", draws, 1), validate.integer("batch_size", batch_size, 1)
    num_steps, seed = validate.integer("num_steps", num_steps, 1), validate.integer("seed", seed, 0)
    names, to_model = _selection(genes, given)
    rows = SparseRows((given.cells.x @ to_model[: given.cells.num_genes]).tocsr())
    mask = given.mask @ to_model[: given.cells.num_genes].astype(bool)  # a gene that the data lack is unobserved
    # The first draw has the seed itself; the others are not those of another seed.
    seeds = [seed, *(mix(seed, k, _PURPOSE) for k in range(1, draws))]
    filled: list[list[Any]] = [[] for _ in seeds]
    for start in range(0, len(mask), batch_size):
        part = slice(start, min(start + batch_size, len(mask)))
        observed = torch.from_numpy(mask[part])
        states = rows[part].long()
        label = None if labels is None else labels[part]
        for parts, own in zip(filled, seeds, strict=True):
            sampled = _draw(model, states, observed, num_steps, own, resample, label=label, start_index=start)
            parts.append((sparse_counts(sampled) @ to_model.T).tocsr())
        if callback is not None:
            callback(part.stop, len(mask))
    return _result([stack(parts) for parts in filled], names, given)


def _selection(genes: Sequence[str], given: ObservedCounts) -> tuple[list[str], Any]:
    """The genes of the result, and the matrix (genes of the result, genes of the model) that selects the latter."""
    from scipy import sparse

    cells, own = given.cells, set(genes)
    needed = numpy.isin(numpy.arange(cells.num_genes), cells.x.indices) | ~given.mask.all(0)
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


def _result(stacks: list[Any], names: list[str], given: ObservedCounts) -> Any:
    from scipy import sparse

    anndata, pandas = optional("anndata", "imputation"), optional("pandas", "imputation")
    obs, var = given.cells.obs, given.var
    obs = pandas.DataFrame(index=list(given.cells.cells)) if obs is None else obs
    if len(names) > len(var):  # numpy's integers and booleans cannot be missing, pandas' can
        nullable = {"b": "boolean", "i": "Int64", "u": "UInt64"}
        var = var.astype({key: nullable[kind.kind] for key, kind in var.dtypes.items() if kind.kind in nullable})
        var = var.reindex(names)
    result = anndata.AnnData(X=sparse.csr_matrix(stacks[0]), obs=obs, var=var)
    if len(stacks) > 1:
        result.layers.update({f"draw_{k + 1}": sparse.csr_matrix(sampled) for k, sampled in enumerate(stacks)})
        mean = (sum(sampled.astype(numpy.float64) for sampled in stacks) / len(stacks)).tocsr()
        square = sum((sampled - mean).power(2) for sampled in stacks) / (len(stacks) - 1)
        result.layers["mean"] = sparse.csr_matrix(mean)
        result.layers["std"] = sparse.csr_matrix(square.sqrt())
    return result
