"""The Inception network of the published Fréchet distances, as torch-fidelity computes it."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.evaluation.features import FeatureNetwork, optional, read_weights

_WANTED = "pt_inception-2015-12-05-6726825d.pth of pytorch-fid, or torch-fidelity's file of the same bytes"


class Inception(FeatureNetwork):
    """Inception-v3 with the weights of 2015-12-05, and TensorFlow's resizing to 299 x 299.

    `weights` is pt_inception-2015-12-05-6726825d.pth of pytorch-fid or weights-inception-2015-12-05-6726825d.pth of
    torch-fidelity, which are equal. Without it, torch-fidelity's file is downloaded.
    """

    num_features = 2048
    num_classes = 1008

    def __init__(self, weights: str | Path | None, device: torch.device) -> None:
        package = optional("torch_fidelity.feature_extractor_inceptionv3", "inception")
        path = _downloaded(package.URL_INCEPTION_V3) if weights is None else Path(weights)
        state, digest = read_weights(path, _WANTED)
        # torch-fidelity unpickles the file, so it gets a clean copy. Its constructor also draws initial weights, so the
        # global generator is restored.
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            clean = Path(folder, "weights.pth")
            torch.save(state, clean)
            try:
                extractor = package.FeatureExtractorInceptionV3(
                    "inception-v3-compat", ["2048", "logits_unbiased"], feature_extractor_weights_path=str(clean)
                )
            except Exception:  # torch-fidelity indexes the weights by name too
                raise ValueError(f"{path}: weights of another network; give {_WANTED}") from None
        self.name, self.device = f"inception-v3-{digest[:8]}", device
        self._extractor: Any = extractor.eval().to(device)

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self._extractor(levels.round().to(torch.uint8))
        return features, logits


def _downloaded(url: str) -> Path:
    """Return the file in torch's cache, where torch-fidelity looks for it; download and verify it if it is missing."""
    path = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = path.stem.rpartition("-")[2]  # the name ends in the first digits of the SHA-256
        try:
            torch.hub.download_url_to_file(url, str(path), hash_prefix=prefix, progress=False)
        except (OSError, RuntimeError) as error:
            raise ConnectionError(
                f"cannot download {url}: {validate.one_line(error)}; give the file as weights"
            ) from None
    return path
