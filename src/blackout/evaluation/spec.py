"""Spec: what is compared, from a TOML file. In [train] and [sample] a list means: each of these."""

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout.data import NAMES
from blackout.evaluation.config import Plan
from blackout.evaluation.distances import MINIMUM
from blackout.recipes import recipe
from blackout.training.config import TrainConfig

_SHIPPED = Path(__file__).parent / "specs"
_TABLES: dict[str, tuple[type, ...]] = {
    "title": (str,),
    "dataset": (str,),
    "data": (str,),
    "model": (list,),
    "train": (dict,),
    "sample": (dict, list),
    "measure": (dict,),
}
_SAMPLE = ("sampler", "steps", "correctors", "grid", "num")
_MEASURE = ("samples", "seed", "images", "times", "reference", "features", "weights", "batch_size")


@dataclass(frozen=True)
class ModelEntry:
    """A model that ships, or a folder."""

    label: str
    source: str


@dataclass(frozen=True)
class Training:
    """A model that is trained for the comparison."""

    label: str
    config: TrainConfig


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A comparison, completely."""

    title: str
    dataset: str
    """A name, or empty for data of one's own."""
    data: str | None
    """Where it is; None: in the folder data, if it needs files."""
    models: tuple[ModelEntry, ...]
    trainings: tuple[Training, ...]
    plans: tuple[Plan, ...]

    @property
    def reading(self) -> dict[str, Any]:
        size = max((training.config.image_size for training in self.trainings), default=0)
        return {"size": size} if size else {}


def shipped_specs() -> list[str]:
    """Names of the specifications that ship with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def read_spec(source: str | Path, data: str | None = None, overrides: Iterable[str] = ()) -> Spec:
    """A specification by name or from a file; `data` and `overrides` such as "train.steps=100" replace its own."""
    path = _SHIPPED / f"{source}.toml" if str(source) in shipped_specs() else Path(source)
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(shipped_specs())
        raise ValueError(f"{source} is neither a file nor a specification that ships (those are: {known})") from None
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
    for name, value in values.items():
        if name not in _TABLES:
            raise ValueError(f"{name!r} is not known; there are: {', '.join(_TABLES)}")
        if not isinstance(value, _TABLES[name]):
            kinds = " or a ".join(kind.__name__ for kind in _TABLES[name])
            raise ValueError(f"{name} must be a {kinds}, got {value!r}")
    models = tuple(ModelEntry(_label(m), str(m["source"])) for m in values.get("model", ()) if _is_model(m))
    trainings = tuple(_trainings(values.get("train", {})))
    if not models and not trainings:
        raise ValueError("there is nothing to compare: give a [[model]] or a [train]")
    labels = [model.label for model in models] + [training.label for training in trainings]
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels must differ, got {', '.join(labels)}")
    dataset = values.get("dataset", trainings[0].config.dataset if trainings else "")
    if dataset and dataset not in NAMES:
        raise ValueError(f"dataset must be one of {', '.join(NAMES)}, or empty for data of your own, got {dataset!r}")
    plans = tuple(_plans(_tables(values.get("sample", {})), values.get("measure", {})))
    for k, plan in enumerate(plans):
        if plan in plans[:k]:
            what = f"{plan.sampler}, {plan.steps} steps, {plan.correctors} correctors, {plan.samples} samples"
            what += f", grid {plan.grid}" if plan.grid else ""
            raise ValueError(f"[[sample]] must differ, got {what} twice")
    title = values.get("title", "Comparison")
    if not title.strip() or not title.isprintable():
        raise ValueError(f"title must be one line of text, got {title!r}")
    return Spec(
        title=title,
        dataset=dataset,
        data=values.get("data"),
        models=models,
        trainings=trainings,
        plans=plans,
    )


def _is_model(value: Any) -> bool:
    if not isinstance(value, dict) or "source" not in value or set(value) - {"source", "label"}:
        raise ValueError(f"a [[model]] has a source and perhaps a label, got {value!r}")
    return True


def _label(model: dict[str, Any]) -> str:
    source = model["source"]
    if not isinstance(source, str) or not source:
        raise ValueError(f"the source of a [[model]] must be a name or a folder, got {source!r}")
    return _folder_name(model.get("label", Path(source).name))


def _folder_name(label: Any) -> str:
    """A label that can be the name of a folder too."""
    if not isinstance(label, str) or not label.strip(" ."):
        raise ValueError(f"a label must be text, and not only dots, got {label!r}")
    return re.sub(r"[^\w.+ -]", "-", label)


def _trainings(values: dict[str, Any]) -> Iterable[Training]:
    if not values:
        return
    names = values.get("recipe")
    names = [names] if isinstance(names, str) else names
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise ValueError(f"[train] needs the name of a recipe, or a list of names, got {values.get('recipe')!r}")
    fields = {f.name for f in dataclasses.fields(TrainConfig)}
    unknown = sorted(set(values) - fields - {"recipe"})
    if unknown:
        raise ValueError(f"[train] has unknown fields: {', '.join(unknown)}")
    for name in names:
        for chosen, varied in _grid({field: value for field, value in values.items() if field != "recipe"}):
            label = _folder_name("-".join([name, *(str(chosen[field]) for field in varied)]))
            yield Training(label, dataclasses.replace(recipe(name), **chosen))


def _tables(value: Any) -> list[dict[str, Any]]:
    """One [sample] or several [[sample]], each a grid of its own."""
    tables = [value] if isinstance(value, dict) else value
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"sample must be a table, or several written [[sample]], got {value!r}")
    return tables


def _plans(samples: list[dict[str, Any]], measure: dict[str, Any]) -> Iterable[Plan]:
    for name, table, known in (*(("sample", s, _SAMPLE) for s in samples), ("measure", measure, _MEASURE)):
        unknown = sorted(set(table) - set(known))
        if unknown:
            raise ValueError(f"[{name}] has unknown fields: {', '.join(unknown)}; there are: {', '.join(known)}")
    for sample in samples:
        fixed = {**measure, **({"samples": sample["num"]} if "num" in sample else {})}
        for chosen, _ in _grid({name: value for name, value in sample.items() if name != "num"}):
            plan = Plan(**{**fixed, **chosen})
            if not plan.samples:
                raise ValueError(f"num must be at least {MINIMUM}, for the scores, got 0")
            yield plan


def _grid(values: dict[str, Any]) -> Iterable[tuple[dict[str, Any], list[str]]]:
    """Every combination of the lists, and the names of what varies."""
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
    *tables, last = name.strip().split(".")
    if not equals or not last or len(tables) > 1:
        raise ValueError(f"an override is written like train.steps=100, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a word needs no quotes
    found = values.setdefault(tables[0], {}) if tables else values
    every = found if isinstance(found, list) and tables[0] == "sample" else [found]
    if not every or not all(isinstance(table, dict) for table in every):
        raise ValueError(f"{tables[0]} cannot be overridden, got {text!r}")
    for table in every:  # several [[sample]] are overridden alike
        table[last] = parsed
