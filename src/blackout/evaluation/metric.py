"""Interface of the metrics that compare samples with data."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from blackout.evaluation.statistics import Statistics

MINIMUM = 50  # samples below which subsets and splits are too small


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleSet:
    """Samples or data, as a metric sees them.

    Attributes
    ----------
    x : Tensor
        States, integers of shape (n, ...).
    statistics : Statistics or None
        Statistics of the features of images; None for other data. Those of samples have logits, those of data do not.
    """

    x: Tensor
    statistics: Statistics | None = None

    @property
    def features(self) -> Statistics:
        if self.statistics is None:
            raise ValueError("statistics must be given for a metric of features, got None")
        return self.statistics


class Metric(ABC):
    """A comparison of samples with data. Each metric is an entry of `METRICS`.

    Attributes
    ----------
    title : str
        Heading in reports.
    better : str
        Which values are good.
    description : str
        One or two sentences for the report.
    values : mapping of str to str
        Names of the computed values and their column headings. A value NAME_error is the standard deviation of NAME.
    needs_features : bool
        Whether the metric is for images alone, because it uses features.
    """

    title: ClassVar[str]
    better: ClassVar[str]
    description: ClassVar[str]
    values: ClassVar[Mapping[str, str]]
    needs_features: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        """Compute the values."""
