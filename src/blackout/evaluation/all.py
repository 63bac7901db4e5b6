"""Whole measurements of models: evaluate one, compare many, keep a record of each."""

from blackout.evaluation.compare import compare
from blackout.evaluation.config import Plan
from blackout.evaluation.evaluate import evaluate
from blackout.evaluation.spec import Spec, read_spec, shipped_specs

__all__ = ["Plan", "Spec", "compare", "evaluate", "read_spec", "shipped_specs"]
