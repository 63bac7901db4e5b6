"""x_t, t -> y: networks, and heads that say what their output means."""

from blackout.network.head import HEADS, BoundedLogitHead, GammaPoissonHead, Head, SoftplusHead
from blackout.network.law import (
    LAW_HEADS,
    CategoricalHead,
    LawHead,
    LawPredictor,
    LevelHead,
    MixtureHead,
    RatesHead,
    StateHead,
    law_head,
    marginal_law,
)
from blackout.network.mlp import MLP, MLPConfig
from blackout.network.ncsnpp import PRESETS, NCSNpp, UNetConfig
from blackout.network.predictor import Predictor

__all__ = [
    "HEADS",
    "LAW_HEADS",
    "MLP",
    "PRESETS",
    "BoundedLogitHead",
    "CategoricalHead",
    "GammaPoissonHead",
    "Head",
    "LawHead",
    "LawPredictor",
    "LevelHead",
    "MLPConfig",
    "MixtureHead",
    "NCSNpp",
    "Predictor",
    "RatesHead",
    "SoftplusHead",
    "StateHead",
    "UNetConfig",
    "law_head",
    "marginal_law",
]
