"""A metric: the difference of mean states."""

from blackout.evaluation import METRICS, Metric, SampleSet


class MeanGap(Metric):
    """Mean state of the samples minus mean state of the data."""

    title = "Mean gap"
    better = "near 0"
    description = "Mean state of the samples minus mean state of the data."
    values = {"mean_gap": "mean gap"}  # noqa: RUF012
    needs_features = False

    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        return {"mean_gap": float(samples.x.double().mean() - data.x.double().mean())}


METRICS.add("mean-gap", MeanGap, "difference of mean states")
