"""Several count tables as one: the genes that all of them have, and their cells one after the other."""

import itertools
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy import sparse

from blackout.cells.counts import Counts
from blackout.cells.names import few, optional, unique_names
from blackout.data.stored_rows import StoredRows, blocks_of


def is_several(source: Any) -> bool:
    """Whether a source is a list of paths or AnnData; other lists are tables."""
    anndata = sys.modules.get("anndata")
    kinds = (str, Path, *([anndata.AnnData] if anndata is not None else []))
    return isinstance(source, list | tuple) and len(source) > 0 and all(isinstance(part, kinds) for part in source)


def stack_counts(parts: Sequence[Counts], name: str) -> Counts:
    """The cells of all parts with the genes that all have, in the order of the first; columns of obs are united."""
    if len(parts) == 1:
        return parts[0]
    common = set(parts[0].genes).intersection(*(part.genes for part in parts[1:]))
    genes = [gene for gene in parts[0].genes if gene in common]
    if not genes:
        first = "; ".join(f"{part.name}: {few(part.genes)}" for part in parts[:3])
        raise ValueError(f"the tables have no gene in common; {first}")
    if any(len(part.genes) > len(genes) for part in parts):
        most = max(len(part.genes) for part in parts)
        warnings.warn(
            f"the tables have different genes: {len(genes)} that all have are used, of up to {most}", stacklevel=3
        )
    aligned = [part if part.genes == tuple(genes) else part.with_genes(genes) for part in parts]
    if any(part.stored for part in parts):
        x = StoredRows.of((block for part in aligned for block in blocks_of(part.x)), len(genes))
    else:
        x = sparse.vstack([part.x for part in aligned], format="csr")
    cells = unique_names([cell for part in parts for cell in part.cells])
    return Counts(x=x, genes=tuple(genes), cells=cells, obs=_obs(parts), name=name)


def _obs(parts: Sequence[Counts]) -> Any:
    """obs of all parts; a column that a part lacks has no value there, categories are united."""
    if all(part.obs is None for part in parts):
        return None
    pandas = optional("pandas", "covariates of cells")
    frames = [pandas.DataFrame(index=list(part.cells)) if part.obs is None else part.obs for part in parts]
    ends = list(itertools.accumulate(map(len, frames)))
    columns = {}
    for key in dict.fromkeys(key for frame in frames for key in frame.columns):
        having = [(end, frame[key]) for end, frame in zip(ends, frames, strict=True) if key in frame]
        values = [column for _, column in having]
        if all(isinstance(column.dtype, pandas.CategoricalDtype) for column in values):
            united = pandas.Series(pandas.api.types.union_categoricals(values))
        else:
            united = pandas.concat(values, ignore_index=True)
        rows = [row for end, column in having for row in range(end - len(column), end)]
        columns[key] = united.set_axis(rows).reindex(range(ends[-1]))
    return pandas.DataFrame(columns, index=range(ends[-1]))
