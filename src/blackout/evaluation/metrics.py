"""METRICS: what samples are compared with data by."""

from collections.abc import Sequence

from blackout.evaluation._registry import Registry
from blackout.evaluation.distances import FrechetDistance, InceptionScore, KernelDistance, PrecisionRecall
from blackout.evaluation.metric import MINIMUM, Metric, SampleSet

METRICS: Registry[type[Metric]] = Registry("metric")
METRICS.add("frechet", FrechetDistance, "Fréchet distance of the features, as in FID")
METRICS.add("kernel", KernelDistance, "kernel distance of the features, as in KID")
METRICS.add("inception-score", InceptionScore, "confidence and diversity of the classes of samples")
METRICS.add("precision-recall", PrecisionRecall, "share of samples near data, and of data near samples")


def compute_metrics(samples: SampleSet, data: SampleSet, names: Sequence[str] = ()) -> dict[str, float]:
    """Compute metrics of samples against data.

    Parameters
    ----------
    samples, data : SampleSet
        At least 50 of each, with the statistics of the same feature network.
    names : sequence of str
        Names in `METRICS`; empty: all. Metrics of features are left out where there are no features.

    Returns
    -------
    dict
        Values of all metrics by name; NAME_error is the standard deviation of NAME.
    """
    for name, given in (("samples", samples), ("data", data)):
        if len(given.x) < MINIMUM:
            raise ValueError(f"{name} must hold at least {MINIMUM} data points, got {len(given.x)}")
    if samples.statistics is not None and data.statistics is not None:
        data.statistics.check_network(samples.statistics.network, samples.features.mean.numel())
    values: dict[str, float] = {}
    for name in applicable(names, features=samples.statistics is not None):
        values |= METRICS.make(name)(samples, data)
    return values


def applicable(names: Sequence[str] = (), *, features: bool) -> list[str]:
    """Names of the metrics, all by default, that can be computed with or without features."""
    return [name for name in names or METRICS if features or not METRICS[name].needs_features]
