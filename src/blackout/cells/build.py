"""A new diffusion model for cells."""

import torch

from blackout.cells.config import CellConfig
from blackout.cells.counts import Counts
from blackout.data.sparse_rows import SparseRows
from blackout.labels import Conditions
from blackout.model import DiffusionModel
from blackout.network import HEADS
from blackout.network.build import build_network
from blackout.process import PureDeath
from blackout.times import ObservationTimes


def new_model(cells: Counts, config: CellConfig, conditions: Conditions | None) -> DiffusionModel:
    """Pure death without a largest count, times that end when the largest cell is empty, and an untrained network."""
    options, process, shape = config.train.network, PureDeath(), (cells.num_genes,)
    head = HEADS[options.head](*SparseRows(cells.x).statistics())
    network = build_network(
        shape, head, process, kind=options.network, width=options.width, blocks=options.blocks,
        dropout=options.dropout if options.dropout >= 0 else None, conditions=conditions,
        seed=config.train.run.seed,
    )  # fmt: skip
    chosen, totals = config.train.process, torch.from_numpy(cells.library).unsqueeze(-1)
    times = ObservationTimes.for_process(process, chosen.num_times, chosen.t_end or None, totals)
    return DiffusionModel(process, times, network, head, options.time_input, shape)
