"""How good samples are: distances to data in the features of a network."""

from blackout.evaluation.distances import Quality, QualityScores, kernel_distance, precision_recall
from blackout.evaluation.features import NETWORKS, FeatureNetwork, feature_network
from blackout.evaluation.statistics import Statistics, cached, collect

__all__ = [
    "NETWORKS",
    "FeatureNetwork",
    "Quality",
    "QualityScores",
    "Statistics",
    "cached",
    "collect",
    "feature_network",
    "kernel_distance",
    "precision_recall",
]
