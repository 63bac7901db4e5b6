"""Networks, and heads that turn their raw output into a posterior."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.network.base import Network as Network
    from blackout.network.build import build_network as build_network
    from blackout.network.categorical_heads import CategoricalHead as CategoricalHead
    from blackout.network.categorical_heads import DistributionHead as DistributionHead
    from blackout.network.categorical_heads import LevelHead as LevelHead
    from blackout.network.categorical_heads import MixtureHead as MixtureHead
    from blackout.network.categorical_heads import RatesHead as RatesHead
    from blackout.network.head import Head as Head
    from blackout.network.mean_heads import BoundedLogitHead as BoundedLogitHead
    from blackout.network.mean_heads import GammaPoissonHead as GammaPoissonHead
    from blackout.network.mean_heads import SoftplusHead as SoftplusHead
    from blackout.network.mlp import MLP as MLP
    from blackout.network.mlp import MLPConfig as MLPConfig
    from blackout.network.ncsnpp import NCSNpp as NCSNpp
    from blackout.network.ncsnpp import UNetConfig as UNetConfig
    from blackout.network.predictor import Predictor as Predictor
    from blackout.network.sequence_head import SequenceHead as SequenceHead
    from blackout.network.student import StudentHead as StudentHead
    from blackout.network.transformer import Transformer as Transformer
    from blackout.network.transformer import TransformerConfig as TransformerConfig

_MEAN, _STATES = "blackout.network.mean_heads", "blackout.network.categorical_heads"

HEADS = Registry("head")
HEADS.add("softplus", f"{_MEAN}:SoftplusHead", "mean under pure death, y = softplus(F) (the paper's)")
HEADS.add("bounded-logit", f"{_MEAN}:BoundedLogitHead", "mean under pure death, within the counts that are possible")
HEADS.add("gamma-poisson", f"{_MEAN}:GammaPoissonHead", "mean under pure death, for counts without a bound")
HEADS.add("categorical", f"{_STATES}:CategoricalHead", "distribution over X_0, any process")
HEADS.add("levels", f"{_STATES}:LevelHead", "distribution over many ordered levels, any process")
HEADS.add("mixture", f"{_STATES}:MixtureHead", "distribution as a mixture of logistics, any process")
HEADS.add("sequence", "blackout.network.sequence_head:SequenceHead", "distribution over the labels of a sequence")
HEADS.add("rates", f"{_STATES}:RatesHead", "reverse rates alone, any process (Algorithm 3)")
HEADS.add("student", "blackout.network.student:StudentHead", "draws of X_0 under pure death: see `blackout distill`")

NETWORKS = Registry("network")
NETWORKS.add("ncsnpp", "blackout.network.ncsnpp:NCSNpp", "NCSN++, a U-Net for images (the paper's)")
NETWORKS.add("mlp", "blackout.network.mlp:MLP", "a residual network for vectors")
NETWORKS.add("transformer", "blackout.network.transformer:Transformer", "a transformer for sequences of labels")

__getattr__, _names = exports(__name__)
__all__ = ["HEADS", "NETWORKS", *_names]
