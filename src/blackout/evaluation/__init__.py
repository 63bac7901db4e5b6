"""Evaluation of models: metrics of samples against data, reports and comparisons."""

from blackout.evaluation.compare import compare
from blackout.evaluation.config import EvalConfig
from blackout.evaluation.distances import kernel_distance, precision_recall
from blackout.evaluation.evaluate import evaluate
from blackout.evaluation.features import FEATURE_NETWORKS, FeatureNetwork, feature_network
from blackout.evaluation.metric import Metric, SampleSet
from blackout.evaluation.metrics import METRICS, compute_metrics
from blackout.evaluation.spec import ModelEntry, Spec, Training, builtin_specs, read_spec
from blackout.evaluation.splits import open_splits
from blackout.evaluation.statistics import Collector, Statistics, cached, collect
from blackout.evaluation.structure import (
    StructureDifferences,
    StructureScores,
    chord_lengths,
    compare_structure,
    porosity,
    specific_surface,
    two_point,
)
from blackout.evaluation.two_sample import neighbour_accuracy, squared_mmd

__all__ = [
    "FEATURE_NETWORKS",
    "METRICS",
    "Collector",
    "EvalConfig",
    "FeatureNetwork",
    "Metric",
    "ModelEntry",
    "SampleSet",
    "Spec",
    "Statistics",
    "StructureDifferences",
    "StructureScores",
    "Training",
    "builtin_specs",
    "cached",
    "chord_lengths",
    "collect",
    "compare",
    "compare_structure",
    "compute_metrics",
    "evaluate",
    "feature_network",
    "kernel_distance",
    "neighbour_accuracy",
    "open_splits",
    "porosity",
    "precision_recall",
    "read_spec",
    "specific_surface",
    "squared_mmd",
    "two_point",
]
