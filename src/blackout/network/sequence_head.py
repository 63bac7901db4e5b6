"""SequenceHead: a distribution over the labels of a sequence. Not in the paper."""

from torch import Tensor

from blackout.network.categorical_heads import DistributionHead, marginal_probs
from blackout.network.head import Observation
from blackout.network.transformer import label_digits, to_digits
from blackout.process.base import MarkovProcess


class SequenceHead(DistributionHead):
    """u(o) = prior(o) e^{F_o}, with one prior for all places; the network is shown the labels themselves.

    For a transformer, which has an embedding for each label. Labels are shown as digits, which bfloat16 holds exactly.
    """

    network = "transformer"

    @property
    def labels(self) -> int:  # type: ignore[override]
        return self.num_states

    def inputs(self, process: MarkovProcess) -> int:
        return label_digits(self.num_states)

    def outputs(self, process: MarkovProcess) -> int:
        return self.num_states

    def encode(self, observation: Observation) -> Tensor:
        return to_digits(observation.xt, self.num_states)

    def logits(self, raw: Tensor) -> Tensor:
        return raw

    @staticmethod
    def data_prior(x: Tensor, process: MarkovProcess) -> Tensor:
        return marginal_probs(x.reshape(-1, 1), process)
