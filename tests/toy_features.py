"""A cheap feature network for tests."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from blackout.evaluation import FeatureNetwork


class ToyFeatures(FeatureNetwork):
    """Four features: the mean levels of the quarters of an image. `brightest` is the largest level seen."""

    name, num_features, num_classes, device = "toy-00000001", 4, 3, torch.device("cpu")

    def __init__(self) -> None:
        self.brightest = 0.0

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        self.brightest = max(self.brightest, float(levels.max()))
        features = torch.nn.functional.adaptive_avg_pool2d(levels.mean(1), 2).flatten(1) / 255
        return features, features[:, :3]


def use_toy_features(monkeypatch: pytest.MonkeyPatch, cache: Any) -> ToyFeatures:
    """Make evaluations use toy features, with statistics cached in the folder `cache`."""
    pytest.importorskip("torchmetrics")
    network = ToyFeatures()
    monkeypatch.setenv("BLACKOUT_CACHE", str(cache))
    for name in ("stages", "grid"):
        module = importlib.import_module(f"blackout.evaluation.{name}")
        monkeypatch.setattr(module, "feature_network", lambda *_: network)
    return network
