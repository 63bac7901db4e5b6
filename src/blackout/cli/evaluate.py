"""blackout evaluate and blackout compare."""

from pathlib import Path
from typing import Annotated, Any

import typer

from blackout.cli.config_options import with_config
from blackout.cli.options import Compile, DataSet, Device, Model, Overwrite, device_by_name
from blackout.evaluation import METRICS, EvalConfig, builtin_specs

Out = Annotated[Path | None, typer.Option(help="folder for the results", metavar="DIR", show_default="reports/NAME")]

# Columns that a narrow terminal leaves out first.
_SPARE = ("samples", "Inception score", "recall", "precision", "kernel", "samples/s")
_TIMES = {"continuous": "times, continuous-time bound", "steps": "steps each, bound of the model's steps"}


@with_config(EvalConfig)
def evaluate(
    source: Model,
    config: EvalConfig,
    data: Annotated[
        str | None,
        typer.Option(
            help="folder with the files of the data set; or held-out data: .npy, .npz, a folder of images, or a folder "
            "with subfolders train and test",
            show_default="data",
        ),
    ] = None,
    dataset: DataSet = "",
    train_data: Annotated[
        str | None, typer.Option(help="training data, if --data does not hold it", show_default="none")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    compiled: Compile = False,
) -> None:
    """Evaluate a model: likelihood, sample quality, speed. The same command resumes after an interruption.

    Writes report.json and report.html, a self-contained page.
    """
    from rich.console import Console

    from blackout.cli.progress import measuring_bar, resumable
    from blackout.evaluation import evaluate as evaluate_model
    from blackout.evaluation.splits import dataset_of, open_splits
    from blackout.io import load
    from blackout.training.fingerprint import was_trained_on

    model, where = load(source), device_by_name(device)
    own, reading = dataset_of(source, model)
    test, train = open_splits(dataset or own, data, train_data, **reading)
    if was_trained_on(Path(source), test.x, test.labels):
        note = "--data holds the training data of the run, so that nothing is held out"
        typer.echo(f"blackout: {note}: bits/dim and distances are those of training data", err=True)
    if config.num_samples is None and where.type == "cpu":
        number = config.samples_on(where.type)
        typer.echo(f"blackout: {number} samples, the default on a CPU; --samples 10000 is usual on a GPU", err=True)
    folder = out or Path("reports", Path(source).name)
    model.to(where)
    if compiled:
        model.compile()
    with resumable(), measuring_bar() as progress:
        report = evaluate_model(
            model, folder, test, train, config, source=source, overwrite=overwrite, progress=progress
        )
    Console().print(_table(report))
    typer.echo(f"{folder / 'report.html'}")


def compare(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help=f"a .toml file, or one of {', '.join(builtin_specs())}")
    ],
    data: Annotated[
        str | None, typer.Option(help="folder or file of the data", show_default="that of the specification, or data")
    ] = None,
    out: Out = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="replace a value of the specification: train.steps=1000, sample.num_steps=[10, 50], ...",
            metavar="TABLE.FIELD=VALUE", show_default="none",
        ),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    compiled: Compile = False,
) -> None:  # fmt: skip
    """Evaluate a grid of heads, losses, samplers and steps. The same command resumes after an interruption.

    Writes comparison.json, .md, .png and .svg.
    """
    from blackout.cli.progress import measuring_bar, resumable
    from blackout.cli.tables import print_table
    from blackout.evaluation import compare as compare_models
    from blackout.evaluation import read_spec
    from blackout.evaluation.comparison import table

    wanted = read_spec(spec, data, override or ())
    folder = out or Path("reports", Path(spec).stem)
    with resumable(), measuring_bar() as progress:
        result = compare_models(
            wanted, folder, device_by_name(device), compiled=compiled, overwrite=overwrite, progress=progress,
            log=typer.echo,
        )  # fmt: skip
    left_out = print_table(*table(result["rows"]), _SPARE)
    rest = f", also with {', '.join(left_out)}" if left_out else ""
    typer.echo(f"{folder / 'comparison.md'}{rest}")


def _table(report: dict[str, Any]) -> Any:
    from rich.table import Table

    from blackout.evaluation.comparison import INFINITE
    from blackout.evaluation.report import format_value
    from blackout.training.history import runs_in

    table = Table("quantity", "value", "details")
    config, sampling = report["config"], report["sampling"]
    bounds = {
        split: (bits, bits and f"{config['num_times']} {_TIMES[bits['bound']]}")
        for split, bits in report["bits_per_dim"].items()
    }
    if bound := report["sampler_bits_per_dim"]:
        bounds[f"{bound['num_steps']} steps"] = bound, bound["sampler"]
    for name, (bits, details) in bounds.items():
        if bits is not None:
            value = INFINITE if bits["infinite"] else format_value(bits["mean"], bits["standard_error"])
            table.add_row(f"bits/dim, {name}", value, f"{bits['num_data']} data points, {details}")
    table.add_row("last time", f"{report['ending']['t_end']:.4g}", report["ending"]["summary"])
    for run in runs_in(report["model"]):
        table.add_row("training run", f"{run.steps:,} steps", str(run))
    for row in _quality_rows(report) + _copying_rows(report) + _structure_rows(report) + _reference_rows(report):
        table.add_row(*row)
    if sampling is not None and sampling["samples_per_second"]:
        rate = format_value(sampling["samples_per_second"])
        table.add_row("samples/s", rate, f"{sampling['sampler']}, {sampling['num_steps']} steps")
    return table


def _quality_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    from blackout.evaluation.report import format_value

    def values(part: dict[str, Any], names: Any) -> str:
        scores = part["scores"]
        return ", ".join(format_value(scores[name], scores.get(f"{name}_error")) for name in names)

    quality, real, rows = report["quality"], report["real_vs_real"], []
    for metric in (METRICS[name] for name in METRICS if quality is not None):
        if set(metric.values) <= set(quality["scores"]):
            details = f"real vs real: {values(real, metric.values)}" if real else ""
            rows.append((metric.title, values(quality, metric.values), details))
    if rows:
        few = ", fewer than features" if quality["rank_deficient"] else ""
        network = f", {quality['features']}" if quality["features"] else ""
        first = f"{quality['num_samples']} samples{network}{few}"
        rows[0] = (*rows[0][:2], f"{first}\n{rows[0][2]}".rstrip())
    return rows


def _copying_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = report["copying"]
    if not found:
        return []
    share, expected = (f"{found[name]:.4f}" for name in ("nearer_to_training", "expected"))
    details = f"held-out images: {found['held_out_distance']:.2f}"
    return [
        ("nearer to training than held-out images", share, f"without copying: {expected}"),
        ("distance to the nearest training image", f"{found['distance']:.2f}", details),
    ]


def _reference_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = report.get("references") or {}
    details = {
        "xz": "xz -9e, held-out data alone", "xz_after_training_data": "xz -9e, after the training data",
        "autoregressive": f"autoregressive transformer, {found.get('steps')} steps",
    }  # fmt: skip
    return [("bits/label, reference", f"{found[name]:.3f}", text) for name, text in details.items() if name in found]


def _structure_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (
            f"{phase}, {name.replace('_', ' ')}, difference",
            f"{scores['difference'][name]:.4f}",
            f"{split} data; real vs real {scores['real_vs_real'][name]:.4f}",
        )
        for phase, sets in (report["structure"] or {}).items()
        for split, scores in sets.items()
        for name in ("porosity", "two_point_max", "chords")
    ]
