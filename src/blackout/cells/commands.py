"""blackout cells train, sample, impute and evaluate. Modules with heavy imports are imported in the functions."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackout.cells.command_inputs import by_column, cells_to_train, column_names, read_cells, splits, training_cells
from blackout.cells.config import FORMATS, SIZED, STEPS, CellConfig, CellEvalConfig, default_train
from blackout.cells.distillation import CellDistillConfig
from blackout.cli.config_options import config_command, with_config, with_overrides
from blackout.cli.options import Correctors, Device, Guidance, Overwrite, Sampler, Seed, Times, device_by_name

if TYPE_CHECKING:
    from blackout.cells.counts import Counts
    from blackout.cells.model import CountModel

cells = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Single cells: models of raw counts of genes.",
)

# Fields of TrainConfig that a model of cells does not use, or that follow from others.
_FIXED = (
    "dataset", "image_size", "background", "max_count", "split", "flip", "length", "alphabet", "process", "preset",
    "patch", "class_conditional", "sample_every", "init",
)  # fmt: skip
_SEVERAL = "repeated or separated by commas for several"


def _option(text: str, *flags: str, default: str | bool = True) -> Any:
    return typer.Option(*flags, help=text, show_default=default)


Run = Annotated[str, typer.Argument(metavar="RUN", help="run folder, folder of a saved model, or hf://USER/NAME")]
Data = Annotated[str, _option(f"the cells: {FORMATS}")]
Backed = Annotated[
    bool | None,
    _option("counts of .h5ad and .zarr stay on the disk", "--backed/--no-backed", default="if memory is short"),
]
Empty = Annotated[str, _option("error: reject cells and genes without counts; drop: remove them")]
Layer = Annotated[
    str | None, _option("layer of AnnData with the raw counts; raw: adata.raw", default="that of the run, or X")
]
Transpose = Annotated[bool, _option("rows of the table are genes", "--transpose")]
Steps = Annotated[int, _option("sampling steps")]
DefaultSteps = Annotated[int | None, _option("sampling steps", default=f"{STEPS}, or a student's")]
BatchSize = Annotated[int, _option("cells at a time")]


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show each warning once, as one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"blackout: {message}", err=True)
        yield


@cells.command("train", cls=config_command(lambda _: default_train(), SIZED))
@with_overrides(exclude=_FIXED)
@_plain_warnings()
def train(
    overrides: dict[str, Any],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help=f"the cells: {FORMATS}; several files are stacked", show_default=False),
    ] = None,
    data: Annotated[list[str] | None, _option("the cells, as an option; repeated for several", default=False)] = None,
    out: Annotated[Path, _option("run folder; an existing run resumes")] = Path("runs/cells"),
    config: Annotated[Path | None, _option("JSON file with a configuration to start from", default="none")] = None,
    labels: Annotated[list[str] | None, _option(f"column of obs to condition on, {_SEVERAL}", default="none")] = None,
    batch_key: Annotated[str | None, _option("column of obs with the batch, a nuisance", default="none")] = None,
    continuous_covariate_keys: Annotated[
        list[str] | None, _option(f"column of obs with numbers to condition on, {_SEVERAL}", default="none")
    ] = None,
    layer: Annotated[str | None, _option("layer of AnnData with the raw counts; raw: adata.raw", default="X")] = None,
    library: Annotated[
        str | None, _option("library size: generated with the cell, or conditioned on", default="generated")
    ] = None,
    validation: Annotated[
        float | None, _option("share of the training cells kept for validation; 0: none", default="0.1")
    ] = None,
    patience: Annotated[
        int | None, _option("validations without improvement after which training ends; 0: never", default="5")
    ] = None,
    held_out: Annotated[float, _option("share of the cells kept out of training, named in held-out.txt")] = 0.0,
    empty: Empty = "error",
    transpose: Transpose = False,
    backed: Backed = None,
) -> None:
    """Train a model of cells: `blackout cells train cells.h5ad`. The same command resumes from the last checkpoint.

    Under torchrun, all processes train together.
    """
    from blackout.cells.held_out import HELD_OUT, hold_out, write_names
    from blackout.cells.model import CountModel
    from blackout.cli.progress import training
    from blackout.training.folder import begin_folder

    if not (sources := [*(files or ()), *(data or ())]):
        raise ValueError("the cells are missing: blackout cells train DATA, or --data DATA")
    own = {
        "labels": column_names(labels), "batch_key": batch_key, "layer": layer, "library": library,
        "continuous_covariate_keys": column_names(continuous_covariate_keys), "validation": validation,
        "patience": patience,
    }  # fmt: skip
    overrides |= {name: value for name, value in own.items() if value is not None}
    wanted = (CellConfig() if config is None else CellConfig.read(config)).replace(**overrides)
    counts = cells_to_train(sources, wanted.layer, empty, transpose, backed)
    counts, test = hold_out(counts, held_out, wanted.train.run.seed, out)
    model = CountModel.for_cells(counts, wanted)
    model.check_run(counts, out)
    begin_folder(out)
    write_names(out, test)
    about = _about(counts, model, "" if test is None else f"; {len(test)} held out, in {out / HELD_OUT}")
    with training(model.config.train, out, model.model, about, "cells", "blackout cells sample") as listener:
        model.train(counts, out, listener)


def _about(counts: "Counts", model: "CountModel", more: str) -> str:
    """A line about the cells of a run."""
    classes = "".join(f", {len(names)} values of {key}" for key, names in model.classes.items())
    return f"{counts.name}: {len(counts)} cells of {counts.num_genes} genes{classes}{more}"


@cells.command("sample")
@_plain_warnings()
def sample(
    source: Run,
    num: Annotated[int, _option("number of cells")] = 64,
    steps: DefaultSteps = None,
    sampler: Sampler = "auto",
    correctors: Correctors = 0,
    times: Times = None,
    seed: Seed = 0,
    label: Annotated[
        list[str] | None,
        _option(
            "class of the cells; COLUMN=CLASS, repeated, for several", "--label", "--class", default="as in training"
        ),
    ] = None,
    batch: Annotated[str | None, _option("batch of the cells", default="as in training")] = None,
    covariate: Annotated[
        list[str] | None, _option("COLUMN=NUMBER, a continuous covariate; repeated", default="as in training")
    ] = None,
    guidance: Guidance = 1.0,
    library: Annotated[
        int | None, _option("library size, for a model conditioned on it", default="as in training")
    ] = None,
    batch_size: BatchSize = 256,
    out: Annotated[
        Path, _option("AnnData (.h5ad, .zarr), or a sparse matrix of scipy with genes, cells and obs:NAME (.npz)")
    ] = Path("samples.h5ad"),
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Sample cells. The same command resumes an interrupted job; several processes share one."""
    from blackout.cells.model import CountModel
    from blackout.cells.sampling import write_samples
    from blackout.cli.progress import resumable, sampling_bar
    from blackout.io.samples import check_steps

    model = CountModel.load(source).to(device_by_name(device))
    check_steps(model.model, steps)
    method, config = model.model.sampler(sampler, correctors), model.config
    given = {"label": by_column(label, config.labels), "batch": batch}
    given["covariates"] = by_column(covariate, config.continuous_covariate_keys)
    with resumable(), sampling_bar(num) as progress:
        write_samples(
            model, out, num, **given, guidance=guidance, library=library, num_steps=steps or "auto", sampler=method,
            times=times, seed=seed, batch_size=batch_size, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    typer.echo(f"{num} cells of {len(model.genes)} genes: {out}")


@cells.command("impute")
@_plain_warnings()
def impute(
    source: Run,
    data: Data,
    mask: Annotated[
        Path | None,
        _option(
            "true where a count is observed, cells x genes: .npy, .npz, or .csv with the names of both",
            default="all counts are observed, the genes that --data lacks are not",
        ),
    ] = None,
    draws: Annotated[int, _option("draws of each cell; 0: posterior means alone, much faster")] = 1,
    steps: Steps = 50,
    resample: Annotated[int | None, _option("repetitions of each step", default="7")] = None,
    seed: Seed = 0,
    batch_size: BatchSize = 256,
    out: Annotated[Path, _option("AnnData (.h5ad, .zarr); a single draw also as .npz")] = Path("imputed.h5ad"),
    overwrite: Overwrite = False,
    layer: Layer = None,
    transpose: Transpose = False,
    device: Device = "auto",
) -> None:
    """Impute the unobserved counts of cells; observed ones are kept.

    Genes of the model that the cells lack are appended. The layer mean holds the posterior means, X the first draw, or
    the means with --draws 0; the layers draw_1, ... and std hold several draws and their standard deviation.
    """
    from blackout import validate
    from blackout.cells.files import STORES, check_output, write_blocks, write_npz
    from blackout.cells.imputation import imputation
    from blackout.cells.model import CountModel
    from blackout.cli.progress import measuring_bar

    validate.integer("steps", steps, 1)
    if check_output(out, overwrite=overwrite).suffix.lower() == ".npz" and draws != 1:
        raise ValueError(f"out must end in .h5ad or .zarr for means and several draws, its layers, got {out}")
    model = CountModel.load(source).to(device_by_name(device))
    options: dict[str, Any] = {"draws": draws, "num_steps": steps, "resample": resample, "seed": seed}
    with measuring_bar() as report:
        options["callback"] = lambda done, total: report("cells", done, total)
        result = imputation(model, data, mask, layer=layer, transpose=transpose, batch_size=batch_size, **options)
        if out.suffix.lower() in STORES:
            write_blocks(out, result.obs, result.var, result.blocks)
        else:
            write_npz(result.to_anndata(), out)
    typer.echo(f"{len(result.obs)} cells, {result.share():.1%} of the counts imputed: {out}")


@cells.command("distill")
@with_config(CellDistillConfig)
@_plain_warnings()
def distill(
    source: Run,
    config: CellDistillConfig,
    data: Annotated[list[str], _option("the cells that the model was trained on; may be repeated")],
    out: Annotated[Path | None, _option("run folder; an existing one is resumed", default="runs/NAME-STEPS")] = None,
    layer: Layer = None,
    transpose: Transpose = False,
) -> None:
    """Train a student that samples cells in a few steps. The same command resumes from the last checkpoint.

    Sample from it with `blackout cells sample`. It has no likelihood and imputes nothing.
    """
    from blackout.cells.distillation import new_student, train_student
    from blackout.cells.model import CountModel
    from blackout.cli.progress import training

    model, folder = CountModel.load(source), out or Path(f"runs/{Path(source).name}-{config.num_steps}")
    train, test = training_cells(Path(source), read_cells(model, data, layer, transpose))
    counts, student = train.align(model.genes), new_student(model, config)
    about, settings = _about(counts, model, f"; student of {source}"), config.train_config(model.config.train)
    with training(settings, folder, student.model, about, "cells", "blackout cells sample") as listener:
        train_student(model, student, config, counts, name=source, folder=folder, held_out=test, listener=listener)


@cells.command("evaluate")
@with_config(CellEvalConfig)
@_plain_warnings()
def evaluate(
    source: Run,
    data: Annotated[
        list[str],
        _option("data of the run, whose held-out.txt names the held-out cells; or held-out cells; may be repeated"),
    ],
    config: CellEvalConfig,
    train_data: Annotated[
        str | None, _option("training cells, if --data does not hold them", default="none")
    ] = None,
    out: Annotated[Path | None, _option("folder for the report", default="reports/NAME")] = None,
    overwrite: Overwrite = False,
    from_run: Annotated[
        bool | None,
        _option(
            "split --data by the held-out.txt of the run", "--held-out-from-run/--no-held-out-from-run",
            default="if it exists and there is no --train-data",
        ),
    ] = None,
    empty: Empty = "error",
    layer: Layer = None,
    transpose: Transpose = False,
    device: Device = "auto",
) -> None:  # fmt: skip
    """Evaluate a model: likelihood, samples against held-out cells, baselines. A killed evaluation resumes.

    Writes report.json and report.html, a page that needs nothing but a browser.
    """
    from blackout.cells.evaluate import evaluate_cells
    from blackout.cells.model import CountModel
    from blackout.cells.report import score_table
    from blackout.cli.progress import measuring_bar, resumable
    from blackout.cli.tables import print_table

    model = CountModel.load(source)
    reading: dict[str, Any] = {"layer": layer, "transpose": transpose, "empty": empty}
    test, training = splits(model, Path(source), data, train_data, from_run, **reading)
    model.to(device_by_name(device))
    out = out or Path("reports", Path(source).name)
    with resumable(), measuring_bar() as progress:
        report = evaluate_cells(
            model, out, test, training, config, source=source, overwrite=overwrite, progress=progress
        )
    print_table(*score_table(report, brief=True))
    sampling = report["sampling"]
    if sampling is not None:
        real = report["scores"]["real_vs_real"]
        note = f"; real: {real['num']} training cells" if real else ""
        how = f"{sampling['num_samples']} samples, {sampling['sampler']}, {sampling['num_steps']} steps"
        typer.echo(f"{how}; {len(test)} held-out cells{note}")
    typer.echo(f"last time {report['ending']['t_end']:.4g}: {report['ending']['summary']}")
    typer.echo(f"{out / 'report.html'}")
