"""x_t, t -> y: networks, and heads that say what their output means."""

from blackout.network.head import HEADS, BoundedLogitHead, GammaPoissonHead, Head, SoftplusHead
from blackout.network.mlp import MLP, MLPConfig
from blackout.network.ncsnpp import PRESETS, NCSNpp, UNetConfig
from blackout.network.predictor import Predictor

__all__ = [
    "HEADS",
    "MLP",
    "PRESETS",
    "BoundedLogitHead",
    "GammaPoissonHead",
    "Head",
    "MLPConfig",
    "NCSNpp",
    "Predictor",
    "SoftplusHead",
    "UNetConfig",
]
