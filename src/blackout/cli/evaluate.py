"""blackout evaluate and blackout compare."""

from pathlib import Path
from typing import Annotated, Any

import typer

from blackout.cli.sample import device_by_name

Out = Annotated[Path | None, typer.Option(help="folder for the results", metavar="DIR", show_default="reports/NAME")]
Device = Annotated[str, typer.Option(help="auto (CUDA if there is one), cpu, cuda, cuda:1, ...")]
Compile = Annotated[
    bool, typer.Option("--compile/--no-compile", help="compile the network; pays for long jobs on CUDA")
]

_FEATURES, _BOUND_IMAGES = "efficientnet-lite0", 64

# Of a comparison, on a narrow terminal.
_SPARE = ("samples", "Inception score", "recall", "precision", "kernel", "images/s")


def evaluate(
    source: Annotated[str, typer.Argument(metavar="RUN_OR_NAME", help="a run folder, or a model that ships")],
    data: Annotated[
        str | None,
        typer.Option(
            help="folder of the data set's files; or held-out data of your own: .npy, .npz or a folder of pictures, "
            "perhaps in train and test; cells: the run's, of which held-out.txt names the held-out ones, or held-out "
            "cells",
            show_default="data",
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="name of the data set: cifar10, ...", show_default="the run's, or the model's own")
    ] = "",
    train_data: Annotated[
        str | None, typer.Option(help="what the model was trained on, if --data does not hold it", show_default="none")
    ] = None,
    out: Out = None,
    samples: Annotated[
        int | None,
        typer.Option(help="samples for the scores; 0: none", show_default="10000; cells: as many as are held out"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="steps from black to the sample", show_default="250; cells: 100")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="bridge, bridge-nearest, poisson, poisson-instantaneous, binomial, exact, posterior",
            show_default="bridge; cells: poisson",
        ),
    ] = None,
    correctors: Annotated[int, typer.Option(help="corrector steps after each step")] = 0,
    grid: Annotated[
        str,
        typer.Option(
            help="when steps are taken, at equal steps of: fisher (the paper's), entropy, variance, kl, length",
            show_default="length if steps are few; the model's own",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="seed of samples and bounds")] = 0,
    images: Annotated[
        int,
        typer.Option(
            help="data points of each split for bits/dim, drawn with the seed from data of your own; 0: all that are "
            "held out"
        ),
    ] = 0,
    times: Annotated[int, typer.Option(help="times at which each data point is looked at")] = 16,
    bound_images: Annotated[
        int, typer.Option(help="data points for the bound of the sampler's steps; 0: none")
    ] = _BOUND_IMAGES,
    reference: Annotated[int, typer.Option(help="training images to compare with, likewise; 0: all")] = 0,
    features: Annotated[str, typer.Option(help="feature network: efficientnet-lite0, inception")] = _FEATURES,
    weights: Annotated[
        str, typer.Option(help="file with the feature network's weights", show_default="those of its package")
    ] = "",
    structure: Annotated[
        bool, typer.Option("--structure", help="label images: compare porosity, two-point function, chord lengths")
    ] = False,
    competitors: Annotated[
        bool, typer.Option("--competitors", help="cells: measure simple generators too, and scVI if it is installed")
    ] = False,
    from_run: Annotated[
        bool | None,
        typer.Option(
            "--held-out-from-run/--no-held-out-from-run",
            help="cells: divide --data as the run did, by its held-out.txt",
            show_default="if it is there, and no --train-data",
        ),
    ] = None,
    empty: Annotated[
        str | None, typer.Option(help="cells: refuse or drop cells without a count", show_default="refuse")
    ] = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="cells: rows of the table are genes")] = False,
    batch_size: Annotated[int, typer.Option(help="at a time; 0: 64 on a CPU, 500 on CUDA; cells: 256")] = 0,
    device: Device = "auto",
    compiled: Compile = False,
) -> None:
    """Measure a model completely: likelihood, sample quality, speed. A killed measurement goes on.

    Writes report.json and report.html, a page that needs nothing but a browser.
    """
    from rich.console import Console

    from blackout.cli.counts import holds_cells
    from blackout.cli.progress import measuring_bar, resumable
    from blackout.evaluation.all import Plan, evaluate
    from blackout.evaluation.splits import dataset_of, open_splits
    from blackout.io.models import load

    if holds_cells(source):
        from blackout.cli.cell_report import evaluate_run

        pictures = {
            "--dataset": dataset, "--weights": weights, "--structure": structure, "--reference": reference,
            "--features": features != _FEATURES, "--bound-images": bound_images != _BOUND_IMAGES, "--compile": compiled,
        }  # fmt: skip
        for name, given in pictures.items():
            if given:
                raise ValueError(f"{name} is for pictures, but {source} is a model of cells")
        evaluate_run(
            source, data, train_data, out or Path("reports", Path(source).name), device_by_name(device),
            empty=empty or "refuse", from_run=from_run, samples=samples, steps=steps,
            sampler=sampler or "poisson", correctors=correctors, grid=grid, seed=seed, cells=images, times=times,
            competitors=competitors, batch_size=batch_size or 256, transpose=transpose,
        )  # fmt: skip
        return
    for name, is_given in (
        ("--competitors", competitors),
        ("--held-out-from-run", from_run is not None),
        ("--empty", empty),
        ("--transpose", transpose),
    ):
        if is_given:
            raise ValueError(f"{name} is for cells, but {source} is no model of counts")
    model = load(source)
    plan = Plan(
        samples=10_000 if samples is None else samples, steps=min(250, len(model.times)) if steps is None else steps,
        sampler=sampler or "bridge", correctors=correctors, grid=grid, seed=seed, images=images, times=times,
        bound_images=bound_images, reference=reference, features=features, weights=weights, structure=structure,
        batch_size=batch_size,
    )  # fmt: skip
    where = device_by_name(device)
    known, reading = dataset_of(source)
    test, train = open_splits(dataset or known, data, train_data, **reading)
    folder = out or Path("reports", Path(source).name)
    model.to(where)
    if compiled:
        model.compile()
    with resumable(), measuring_bar() as tell:
        report = evaluate(model, folder, test, train, plan, source=source, tell=tell)
    Console().print(_table(report))
    typer.echo(f"{folder / 'report.html'}")


def compare(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="a .toml file, or a specification that ships")],
    data: Annotated[
        str | None, typer.Option(help="folder or file of the data", show_default="the specification's, or data")
    ] = None,
    out: Out = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="replace a value, such as train.steps=1000", metavar="NAME=VALUE")
    ] = None,
    device: Device = "auto",
    compiled: Compile = False,
) -> None:
    """Measure a grid of heads, losses, samplers, steps and correctors. A killed comparison goes on.

    Ships with: samplers, samplers-mnist, heads, times, few-steps, processes, paper-table-1, digits. Writes
    comparison.json, .md, .png and .svg.
    """
    from blackout.cli.progress import measuring_bar, resumable
    from blackout.cli.tables import show
    from blackout.evaluation.all import compare, read_spec
    from blackout.evaluation.comparison import table

    wanted = read_spec(spec, data, override or ())
    folder = out or Path("reports", Path(spec).stem)
    with resumable(), measuring_bar() as tell:
        result = compare(
            wanted, folder, device_by_name(device), compiled=compiled, tell=tell, say=lambda line: typer.echo(line)
        )
    left_out = show(*table(result["rows"]), _SPARE)
    rest = f", with {', '.join(left_out)} too" if left_out else ""
    typer.echo(f"{folder / 'comparison.md'}{rest}")


def _table(report: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("what", "figure", "of")
    for split, bits in report["bits_per_dim"].items():
        if bits is not None:
            figure = _figure(bits["mean"], bits["standard_error"])
            table.add_row(f"bits/dim, {split}", figure, f"{bits['images']} images, {bits['times']} times")
    bound = report["sampler_bits_per_dim"]
    if bound is not None:
        figure = _figure(bound["mean"], bound["standard_error"])
        table.add_row(f"bits/dim, {bound['steps']} steps", figure, f"{bound['images']} images, {bound['sampler']}")
    quality, sampling = report["quality"], report["sampling"]
    if quality is not None:
        against = f"{quality['num_samples']} samples, {quality['features']}"
        deficient = ", fewer than features" if quality["rank_deficient"] else ""
        floor = {} if report["floor"] is None else _scores(report["floor"])
        for k, (name, figure) in enumerate(_scores(quality).items()):
            of = f"{against}{deficient}" if k == 0 else ""
            beside = f"held-out data: {floor[name]}" if floor else ""
            table.add_row(name, figure, "\n".join(text for text in (of, beside) if text))
    for phase, sets in (report["structure"] or {}).items():
        for name, scores in sets.items():
            difference, floor = scores["difference"], scores["floor"]
            for what in ("porosity", "two_point_largest", "chords"):
                of = f"{name} data; between its halves {floor[what]:.4f}"
                table.add_row(f"{phase}, {what.replace('_', ' ')}, difference", f"{difference[what]:.4f}", of)
    if sampling is not None and sampling["images_per_second"]:
        table.add_row(
            "images/s", f"{sampling['images_per_second']:.3g}", f"{sampling['sampler']}, {sampling['steps']} steps"
        )
    return table


def _scores(quality: dict[str, Any]) -> dict[str, str]:
    return {
        "Fréchet distance": f"{quality['frechet']:.4g}",
        "kernel distance": f"{quality['kernel']:.4g} ± {quality['kernel_error']:.2g}",
        "Inception score": f"{quality['inception_score']:.3f} ± {quality['inception_error']:.3f}",
        "precision, recall": f"{quality['precision']:.3f}, {quality['recall']:.3f}",
    }


def _figure(value: float | None, error: float | None) -> str:
    """One data point has no error."""
    if value is None:
        return "infinite"
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
