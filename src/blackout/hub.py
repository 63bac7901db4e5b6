"""Models on the Hugging Face Hub: download, upload, and the model card. Only safetensors and JSON are read."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from blackout import validate
from blackout.bits import BitsPerDim
from blackout.record import ModelRecord

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from blackout.model import DiffusionModel

PREFIX = "hf://"
"""Addresses on the Hub begin with it: hf://user/name, or hf://user/name@revision."""

_LOGIN = "`hf auth login` stores your token"


class Saved(Protocol):
    """What can be pushed: a model with `save`."""

    def save(self, folder: str | Path) -> Path: ...


def local(source: str | Path) -> str | Path:
    """The folder of a model on the Hub, downloaded; anything but an address is returned as it is."""
    return download(str(source)) if str(source).startswith(PREFIX) else source


def download(address: str) -> Path:
    """The files of a model in the cache of huggingface_hub, which downloads those that are not there yet.

    Parameters
    ----------
    address
        ``hf://user/name``, or ``hf://user/name@revision`` with a branch, a tag or a commit.

    Raises
    ------
    ValueError
        If the Hub has no such model or revision, or does not show it to you.
    ConnectionError
        If the Hub cannot be reached and the model is not in the cache.
    """
    repo, _, revision = address.removeprefix(PREFIX).partition("@")
    with _messages(address) as api:
        patterns = ["*.json", "*.safetensors"]
        return Path(api.snapshot_download(repo, revision=revision or None, allow_patterns=patterns))


def push_to_hub(
    model: Saved,
    repo: str,
    *,
    license: str | None = None,
    bits: BitsPerDim | None = None,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str = "Upload a model of Blackout",
) -> str:
    """Upload a model and its model card to the Hugging Face Hub. An existing repository gets a new commit.

    Parameters
    ----------
    repo
        ``user/name``.
    license
        Licence of the weights, by the Hub's name for it, such as "apache-2.0"; it depends on the training data.
    bits
        A result of `bits_per_dim` on held-out data, for the model card.
    private, token
        Whether a new repository is private, and an access token (default: that of `hf auth login`).

    Returns
    -------
    str
        The address of the model: `blackout.load` takes it.
    """
    with tempfile.TemporaryDirectory() as folder, _messages(PREFIX + repo) as api:
        config = json.loads((model.save(Path(folder)) / "model.json").read_text(encoding="utf-8"))
        text = card(config, repo, type(model).__name__, license=license, bits=bits)
        (Path(folder) / "README.md").write_text(text, encoding="utf-8")
        api.create_repo(repo, private=private, exist_ok=True, token=token)
        old = ["model-*.safetensors"]  # a model of fewer files must not be mixed with the one before
        api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message=commit_message, delete_patterns=old, token=token
        )
    return PREFIX + repo


def card(
    config: dict[str, Any], repo: str, kind: str, *, license: str | None = None, bits: BitsPerDim | None = None
) -> str:
    """The model card: metadata for the Hub, how to use the model, and what its record has about it.

    Parameters
    ----------
    config
        The content of model.json.
    repo, kind
        ``user/name``, and the class of the model: "DiffusionModel" or "CountModel".
    license, bits
        As in `push_to_hub`.
    """
    from huggingface_hub import ModelCardData

    record, shape, name = ModelRecord.from_config(config), config["shape"] or [], repo.rpartition("/")[2]
    data = ModelCardData(
        library_name="blackout-diffusion",
        license=license,
        tags=["diffusion", "discrete-diffusion", config["process"]["kind"]],
        pipeline_tag="unconditional-image-generation" if len(shape) == 3 else None,
    )
    facts = {
        "forward process": config["process"]["kind"],
        "shape of a data point": " × ".join(map(str, shape)),
        "network": config["network"]["kind"],
        "head": config["head"]["kind"],
        "observation times": f"{len(config['times'])}, up to t = {config['times'][-1]:.4g}",
        "sampler": record.sampling.sampler,
        "sampling steps": record.sampling.num_steps,
        "classes": ", ".join(record.class_names or ()),
        "bits/dim": "" if bits is None else f"{bits} ({bits.bound} bound)",
    }
    rows = [f"| {fact} | {_cell(value)} |" for fact, value in facts.items() if value]
    runs = [f"- {run}" for run in record.runs] or ["The training runs are not recorded."]
    lines = [
        "---", data.to_yaml(), "---", "", f"# {name}", "",
        "A generative diffusion model of discrete states, made with Blackout. Its weights are safetensors, its",
        "description is JSON: loading it runs no code of the repository.", "",
        "## Use", "", "```", "pip install 'blackout-diffusion[hub]'", "```", "",
        "```python", "import blackout as bo", "", f"model = bo.{kind}.from_pretrained({repo!r})",
        "samples = model.sample(16, seed=0)", "```", "",
        "## Model", "", "| | |", "|---|---|", *rows, "",
        "## Training", "", *runs, "",
    ]  # fmt: skip
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """A value as text in a table: names of classes may hold anything."""
    return " ".join(str(value).replace("|", "\\|").split())


def from_pretrained(repo: str) -> "DiffusionModel":
    """Load a model from the Hugging Face Hub: ``user/name``, or ``user/name@revision``; as `load` of ``hf://...``."""
    from blackout.io.models import load

    return load(PREFIX + repo)


@contextmanager
def _messages(address: str) -> "Iterator[HfApi]":
    """The Hub; its errors as one line that names the address."""
    try:
        from huggingface_hub import HfApi, errors
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of its HTTP client: any failure
    except ModuleNotFoundError:
        raise ValueError("the Hugging Face Hub needs huggingface_hub: pip install 'blackout-diffusion[hub]'") from None
    try:
        yield HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="blackout-diffusion")
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise ValueError(f"{address} is not on the Hugging Face Hub, or private; {_LOGIN}") from None
    except (errors.HFValidationError, errors.BadRequestError) as error:
        raise ValueError(f"{address}: {validate.one_line(error)}") from None
    except errors.HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise ValueError(f"{address}: the Hugging Face Hub does not accept the token; {_LOGIN}") from None
        raise ConnectionError(f"{address}: {validate.one_line(error)}") from None
    except (HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise ConnectionError(f"{address}: {validate.one_line(error)}") from None
