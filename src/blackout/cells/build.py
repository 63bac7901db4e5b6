"""A new diffusion model for cells."""

from typing import Any

import torch

from blackout import validate
from blackout.cells.config import HEADS as COUNT_HEADS
from blackout.cells.config import STEPS, CellConfig
from blackout.cells.counts import Counts
from blackout.cells.covariates import Covariates
from blackout.cells.effects import label_effects
from blackout.data.sparse_rows import SparseRows
from blackout.model import DiffusionModel
from blackout.network import HEADS
from blackout.network.build import build_network
from blackout.network.head import Head
from blackout.process import PureDeath
from blackout.times import ObservationTimes


def new_model(cells: Counts, config: CellConfig, covariates: Covariates) -> DiffusionModel:
    """Pure death without a largest count, times that end when the largest cell is empty, and an untrained network."""
    options, process, shape = config.train.network, PureDeath(), (cells.num_genes,)
    head = _head(cells, validate.choice("head", options.head, COUNT_HEADS), covariates)
    network = build_network(
        shape, head, process, kind=options.network, width=options.width, blocks=options.blocks,
        dropout=options.dropout if options.dropout >= 0 else None, conditions=covariates.conditions,
        seed=config.train.run.seed,
    )  # fmt: skip
    chosen, totals = config.train.process, torch.from_numpy(cells.library).unsqueeze(-1)
    times = ObservationTimes.for_process(process, chosen.num_times, chosen.t_end or None, totals)
    model = DiffusionModel(process, times, network, head, options.time_input, shape)
    return model.with_sampling(sampler="poisson", num_steps=STEPS)


def _head(cells: Counts, name: str, covariates: Covariates) -> Head:
    """The head of this name with the statistics of the cells, and, for the gamma-Poisson head, the labels' effects."""
    rows = SparseRows(cells.x)
    mean, std = rows.statistics()
    label = covariates.encode_cells(cells)
    given: dict[str, Any] = {}
    if name == "gamma-poisson" and label is not None and covariates.conditions is not None:
        effects, std = label_effects(rows, label, covariates.conditions, mean)
        given = {"effects": effects, "conditions": covariates.conditions}
    head: Head = HEADS[name](mean, std, **given)
    return head
