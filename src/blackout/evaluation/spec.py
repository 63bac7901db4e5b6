"""Spec: a comparison, from a TOML file. A list in [train] or [sample] is a dimension of the grid, `seeds` are not."""

import itertools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.data import DATASETS
from blackout.evaluation.config import MINIMUM, EvalConfig, reading_of
from blackout.files import read_text
from blackout.recipes import recipe
from blackout.training.config import TrainConfig

_FOLDER = Path(__file__).parent / "specs"
_TABLES: dict[str, tuple[type, ...]] = {
    "title": (str,),
    "dataset": (str,),
    "data": (str,),
    "seeds": (list,),
    "model": (list,),
    "train": (dict,),
    "sample": (dict, list),
    "evaluate": (dict,),
}
_SAMPLE = ("sampler", "num_steps", "corrector_steps", "times", "dropout", "num_samples")
_EVALUATE = (
    "num_samples", "seed", "num_data", "num_times", "bound", "num_reference", "metrics", "features", "weights",
    "batch_size",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A comparison.

    Attributes
    ----------
    dataset, data
        As for `open_splits`.
    models, trainings
        Label -> name or folder of a model, and label -> configuration of a model that is trained first.
    configs
        How each of them is sampled and evaluated.
    seeds
        Each training and each cell is repeated with these seeds, and a row holds the means over them. Empty: once, with
        the seeds of `trainings` and `configs`.
    """

    title: str
    dataset: str
    data: str | None
    models: dict[str, str]
    trainings: dict[str, TrainConfig]
    configs: tuple[EvalConfig, ...]
    seeds: tuple[int, ...] = ()

    @property
    def reading(self) -> dict[str, Any]:
        """Options of `open_splits`, which all trainings share."""
        return next((reading_of(config) for config in self.trainings.values()), {})


def builtin_specs() -> list[str]:
    """Return the names of the specifications in the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_spec(source: str | Path, data: str | None = None, overrides: Iterable[str] = ()) -> Spec:
    """Read a specification.

    Parameters
    ----------
    source
        A name of `builtin_specs` or a TOML file.
    data
        Replaces the specification's `data`.
    overrides
        Replacements such as "train.steps=100": table.field=value, or field=value for one outside of tables. Values are
        TOML; text needs no quotes. If there are several [[sample]], all are changed.
    """
    path = _FOLDER / f"{source}.toml" if str(source) in builtin_specs() else Path(source)
    try:
        values = tomllib.loads(read_text(path))
    except FileNotFoundError:
        names = ", ".join(builtin_specs())
        raise ValueError(f"spec must be a TOML file or one of {names}, got {str(source)!r}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for text in overrides:
        _override(values, text)
    if data is not None:
        values["data"] = data
    try:
        return _spec(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _spec(values: dict[str, Any]) -> Spec:
    _check_names("the specification", values, _TABLES)
    for name, value in values.items():
        if not isinstance(value, _TABLES[name]):
            kinds = " or a ".join(kind.__name__ for kind in _TABLES[name])
            raise ValueError(f"{name} must be a {kinds}, got {value!r}")
    models = [_model(value) for value in values.get("model", ())]
    trainings = list(_trainings(values.get("train", {})))
    labels = [label for label, _ in (*models, *trainings)]
    if not labels:
        raise ValueError("there is nothing to compare: give a [[model]] or a [train]")
    if any(reading_of(config) != reading_of(trainings[0][1]) for _, config in trainings):
        raise ValueError("image_size and split of [train] must be the same for all recipes")
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must differ, got {', '.join(labels)}")
    dataset = values.get("dataset", trainings[0][1]["dataset"] if trainings else "")
    if dataset:
        DATASETS.check(dataset)
    title = values.get("title", "Comparison")
    if not title.strip() or not title.isprintable():
        raise ValueError(f"title must be one line of text, got {title!r}")
    configs = tuple(_configs(values.get("sample", {}), values.get("evaluate", {})))
    return Spec(
        title=title, dataset=dataset, data=values.get("data"), models=dict(models), trainings=dict(trainings),
        configs=configs, seeds=_seeds(values),
    )  # fmt: skip


def _seeds(values: dict[str, Any]) -> tuple[int, ...]:
    if "seeds" not in values:
        return ()
    seeds = [validate.integer("seeds", seed, 0) for seed in values["seeds"]]
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be different integers, at least one, got {values['seeds']!r}")
    for table in ("train", "evaluate"):
        if "seed" in values.get(table, {}):
            raise ValueError(f"seed of [{table}] must not be given beside seeds, got {values[table]['seed']!r}")
    return tuple(seeds)


def _model(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or "source" not in value or set(value) - {"source", "label"}:
        raise ValueError(f"a [[model]] must have a source and may have a label, got {value!r}")
    source = value["source"]
    if not isinstance(source, str) or not source:
        raise ValueError(f"the source of a [[model]] must be a name or a folder, got {source!r}")
    return _folder_name(value.get("label", Path(source).name)), source


def _folder_name(label: Any) -> str:
    """A label that is a valid name of a folder."""
    if not isinstance(label, str) or not label.strip(" ."):
        raise ValueError(f"label must be text, and not only dots, got {label!r}")
    return re.sub(r"[^\w.+ -]", "-", label)


def _trainings(values: dict[str, Any]) -> Iterable[tuple[str, TrainConfig]]:
    if not values:
        return
    if "recipe" not in values:
        raise ValueError("this comparison trains no model: it has no [train] with a recipe")
    names = values["recipe"]
    names = [names] if isinstance(names, str) else names
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise ValueError(f"recipe of [train] must be a name or a list of names, got {values['recipe']!r}")
    _check_names("[train]", values, ["recipe", *TrainConfig.fields()])
    for name in names:
        for chosen, varied in _grid({field: value for field, value in values.items() if field != "recipe"}):
            label = _folder_name("-".join([name, *(str(chosen[field]) for field in varied)]))
            yield label, recipe(name).replace(**chosen)


def _configs(samples: Any, evaluate: dict[str, Any]) -> Iterable[EvalConfig]:
    """The grid of one [sample], or of several [[sample]] one after the other."""
    tables = [samples] if isinstance(samples, dict) else samples
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"sample must be a table [sample], or several [[sample]], got {samples!r}")
    _check_names("[evaluate]", evaluate, _EVALUATE)
    seen: list[EvalConfig] = []
    for table in tables:
        _check_names("[sample]", table, _SAMPLE)
        for chosen, _ in _grid(table):
            config = EvalConfig(**{**evaluate, **chosen})
            if config.num_samples == 0:
                raise ValueError(f"num_samples must be at least {MINIMUM}, for the metrics, got 0")
            if config in seen:
                raise ValueError(f"[[sample]] must differ, got twice {chosen}")
            seen.append(config)
            yield config


def _check_names(what: str, given: Iterable[str], names: Iterable[str]) -> None:
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(f"{what} has unknown fields: {', '.join(unknown)}; choose from {', '.join(names)}")


def _grid(values: dict[str, Any]) -> Iterable[tuple[dict[str, Any], list[str]]]:
    """Every combination of the lists, and the names of the lists."""
    varied = [name for name, value in values.items() if isinstance(value, list)]
    for name in varied:
        if not values[name]:
            raise ValueError(f"{name} must not be an empty list")
        if any(value in values[name][:k] for k, value in enumerate(values[name])):
            raise ValueError(f"{name} must not have the same value twice, got {values[name]!r}")
    for combination in itertools.product(*(values[name] for name in varied)):
        yield {**values, **dict(zip(varied, combination, strict=True))}, varied


def _override(values: dict[str, Any], text: str) -> None:
    name, equals, value = text.partition("=")
    *tables, field = name.strip().split(".")
    if not equals or not field or len(tables) > 1:
        raise ValueError(f"overrides must be like train.steps=100, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    found = values.setdefault(tables[0], {}) if tables else values
    every = found if isinstance(found, list) and tables[0] == "sample" else [found]
    if not every or not all(isinstance(table, dict) for table in every):
        raise ValueError(f"overrides must name a field of a table, got {text!r}")
    for table in every:
        table[field] = parsed
