"""How good samples are: distances to data in the features of a network, structure of a phase, genes of cells."""

from blackout.evaluation.distances import Quality, QualityScores, kernel_distance, precision_recall
from blackout.evaluation.features import NETWORKS, FeatureNetwork, feature_network
from blackout.evaluation.statistics import Statistics, cached, collect
from blackout.evaluation.structure import (
    StructureDifferences,
    StructureScores,
    chord_lengths,
    compare_structure,
    porosity,
    specific_surface,
    two_point,
)

__all__ = [
    "NETWORKS",
    "FeatureNetwork",
    "Quality",
    "QualityScores",
    "Statistics",
    "StructureDifferences",
    "StructureScores",
    "cached",
    "chord_lengths",
    "collect",
    "compare_structure",
    "feature_network",
    "kernel_distance",
    "porosity",
    "precision_recall",
    "specific_surface",
    "two_point",
]
