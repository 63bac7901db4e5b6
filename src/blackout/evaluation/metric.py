"""Metric: a comparison of samples with data."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from blackout.evaluation import METRICS
from blackout.evaluation.config import MINIMUM
from blackout.evaluation.statistics import Statistics


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleSet:
    """Samples or data, as a metric sees them.

    Attributes
    ----------
    x
        States, integers of shape (n, ...).
    statistics
        Statistics of the features of images; None for other data. Those of samples have logits, those of data do not.
    pad_state
        The label that fills sequences up to one length; None: there is none.
    """

    x: Tensor
    statistics: Statistics | None = None
    pad_state: int | None = None

    @property
    def features(self) -> Statistics:
        if self.statistics is None:
            raise ValueError("statistics must be given for a metric of features, got None")
        return self.statistics


class Metric(ABC):
    """A comparison of samples with data. Each metric is an entry of `METRICS`.

    Attributes
    ----------
    title
        Heading in reports.
    better
        Which values are good.
    description
        One or two sentences for the report.
    values
        Names of the computed values and their column headings. A value NAME_error is the standard deviation of NAME.
    needs_features
        Whether the metric is for images alone, because it uses features.
    needs_sequences
        Whether the metric is for sequences of labels alone.
    """

    title: ClassVar[str]
    better: ClassVar[str]
    description: ClassVar[str]
    values: ClassVar[Mapping[str, str]]
    needs_features: ClassVar[bool] = True
    needs_sequences: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        """Compute the values."""


def compute_metrics(
    samples: SampleSet, data: SampleSet, names: Sequence[str] = (), *, sequences: bool = False
) -> dict[str, float]:
    """Compute metrics of samples against data.

    Parameters
    ----------
    samples, data
        At least 50 of each, with the statistics of the same feature network.
    names
        Names in `METRICS`; empty: all. Metrics of features are left out where there are no features.
    sequences
        Whether the data are sequences of labels; the metrics of these are left out otherwise.

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
    for name in applicable(names, features=samples.statistics is not None, sequences=sequences):
        values |= METRICS.make(name)(samples, data)
    return values


def applicable(names: Sequence[str] = (), *, features: bool, sequences: bool = False) -> list[str]:
    """Return the names of the metrics, all by default, that can be computed with or without features or sequences."""
    kinds = {name: METRICS[name] for name in names or METRICS}
    fit = {name: kind for name, kind in kinds.items() if features or not kind.needs_features}
    return [name for name, kind in fit.items() if sequences or not kind.needs_sequences]
