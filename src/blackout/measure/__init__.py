"""Whole measurements of models: evaluate one, compare many, keep a record of each."""

from blackout.measure.cell_parts import CellPlan
from blackout.measure.cells import evaluate_cells
from blackout.measure.compare import compare
from blackout.measure.evaluate import evaluate
from blackout.measure.plan import Plan
from blackout.measure.spec import Spec, read_spec, shipped_specs

__all__ = ["CellPlan", "Plan", "Spec", "compare", "evaluate", "evaluate_cells", "read_spec", "shipped_specs"]
