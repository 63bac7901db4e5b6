"""Single cells: models of raw counts of genes, with their files, samples, imputation, evaluation and commands."""

from typing import TYPE_CHECKING

from blackout.registry import exports

if TYPE_CHECKING:
    from blackout.cells.baselines import BASELINES as BASELINES
    from blackout.cells.baselines import Baseline as Baseline
    from blackout.cells.baselines import GeneBootstrap as GeneBootstrap
    from blackout.cells.config import CellConfig as CellConfig
    from blackout.cells.config import CellEvalConfig as CellEvalConfig
    from blackout.cells.copula import GaussianCopula as GaussianCopula
    from blackout.cells.counts import Counts as Counts
    from blackout.cells.covariates import Covariates as Covariates
    from blackout.cells.distillation import distill_cells as distill_cells
    from blackout.cells.evaluate import evaluate_cells as evaluate_cells
    from blackout.cells.library import LibrarySizes as LibrarySizes
    from blackout.cells.metrics import CellScores as CellScores
    from blackout.cells.metrics import compare_cells as compare_cells
    from blackout.cells.negative_binomial import NegativeBinomial as NegativeBinomial
    from blackout.cells.observed import ObservedCounts as ObservedCounts
    from blackout.cells.observed import read_observed as read_observed
    from blackout.cells.read import read_counts as read_counts
    from blackout.cells.read import to_anndata as to_anndata
    from blackout.cells.representation import mixing_scores as mixing_scores
    from blackout.cells.sampling import CellSamples as CellSamples
    from blackout.cells.sampling import write_samples as write_samples
    from blackout.cells.scvi import ScVI as ScVI

__getattr__, __all__ = exports(__name__)
