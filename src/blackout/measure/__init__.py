"""Whole measurements of models: evaluate one, compare many, keep a record of each."""

from blackout.measure.compare import compare
from blackout.measure.evaluate import evaluate
from blackout.measure.plan import Plan
from blackout.measure.spec import Spec, read_spec, shipped_specs

__all__ = ["Plan", "Spec", "compare", "evaluate", "read_spec", "shipped_specs"]
