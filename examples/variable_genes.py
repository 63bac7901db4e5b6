"""Split cells into training and test files with the most variable genes, for the comparison in docs/results.md.

python examples/variable_genes.py CELLS --genes 2000 --out split
"""

import argparse
from pathlib import Path

import numpy

from blackout.cells import read_counts, to_anndata


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", help="anything that read_counts reads, such as a folder of 10x .h5 files")
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("split"))
    chosen = parser.parse_args()
    cells = read_counts(chosen.cells, empty="keep")
    order = numpy.random.default_rng(0).permutation(len(cells))
    ninety = int(0.9 * len(cells))
    train = cells.take(order[:ninety])
    logs = train.x.astype(float)
    logs.data = numpy.log1p(logs.data)
    variance = logs.multiply(logs).mean(0) - logs.mean(0) ** 2  # of the training cells
    genes = numpy.sort(numpy.argsort(-numpy.asarray(variance).ravel(), kind="stable")[: chosen.genes])
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("test", cells.take(order[ninety:]))):
        part = part.with_genes([part.genes[k] for k in genes])
        to_anndata(part.x, part.genes, part.cells, part.obs).write_h5ad(chosen.out / f"{name}.h5ad")
        print(f"{chosen.out / name}.h5ad: {len(part)} cells, {part.num_genes} genes")


if __name__ == "__main__":
    main()
