"""Evaluation of models: metrics of samples against data, reports and comparisons."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.evaluation.autoregressive import AutoregressiveModel as AutoregressiveModel
    from blackout.evaluation.config import EvalConfig as EvalConfig
    from blackout.evaluation.distances import kernel_distance as kernel_distance
    from blackout.evaluation.distances import precision_recall as precision_recall
    from blackout.evaluation.features import FeatureNetwork as FeatureNetwork
    from blackout.evaluation.features import feature_network as feature_network
    from blackout.evaluation.grid import compare as compare
    from blackout.evaluation.metric import Metric as Metric
    from blackout.evaluation.metric import SampleSet as SampleSet
    from blackout.evaluation.metric import compute_metrics as compute_metrics
    from blackout.evaluation.ngrams import xz_bits as xz_bits
    from blackout.evaluation.pipeline import evaluate as evaluate
    from blackout.evaluation.spec import Spec as Spec
    from blackout.evaluation.spec import builtin_specs as builtin_specs
    from blackout.evaluation.spec import read_spec as read_spec
    from blackout.evaluation.splits import open_splits as open_splits
    from blackout.evaluation.statistics import Collector as Collector
    from blackout.evaluation.statistics import Statistics as Statistics
    from blackout.evaluation.statistics import cached as cached
    from blackout.evaluation.statistics import collect as collect
    from blackout.evaluation.structure import StructureDifferences as StructureDifferences
    from blackout.evaluation.structure import StructureScores as StructureScores
    from blackout.evaluation.structure import chord_lengths as chord_lengths
    from blackout.evaluation.structure import compare_structure as compare_structure
    from blackout.evaluation.structure import porosity as porosity
    from blackout.evaluation.structure import specific_surface as specific_surface
    from blackout.evaluation.structure import two_point as two_point
    from blackout.evaluation.two_sample import neighbour_accuracy as neighbour_accuracy
    from blackout.evaluation.two_sample import squared_mmd as squared_mmd

_DISTANCES = "blackout.evaluation.distances"

METRICS = Registry("metric")
"""Metrics of samples against data. A new one is a module with a `Metric`, and one line here."""

METRICS.add("frechet", f"{_DISTANCES}:FrechetDistance", "Fréchet distance of the features, as in FID")
METRICS.add("kernel", f"{_DISTANCES}:KernelDistance", "kernel distance of the features, as in KID")
METRICS.add("inception-score", f"{_DISTANCES}:InceptionScore", "confidence and diversity of the classes of samples")
METRICS.add("precision-recall", f"{_DISTANCES}:PrecisionRecall", "share of samples near data, and of data near samples")
METRICS.add("ngrams", "blackout.evaluation.ngrams:NgramDistance", "novelty and frequencies of n-grams of sequences")

FEATURE_NETWORKS = Registry("feature network")
FEATURE_NETWORKS.add("efficientnet-lite0", "blackout.evaluation.features:EfficientNetLite0", "works offline")
FEATURE_NETWORKS.add("inception", "blackout.evaluation.inception:Inception", "that of published Fréchet distances")

__getattr__, _names = exports(__name__)
__all__ = ["FEATURE_NETWORKS", "METRICS", *_names]
