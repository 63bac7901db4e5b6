"""The command line: `blackout COMMAND`. Exit status 0; 2 for bad input, 1 for anything else, each with one line."""

import sys
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Generative diffusion on discrete states.",
)
bench = typer.Typer(no_args_is_help=True, help="Measure speed and memory, as ratios taken side by side in one run.")
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from blackout import __version__

        typer.echo(f"blackout {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Generative diffusion on discrete states."""


@bench.command("processes")
def bench_processes() -> None:
    """Forward draws for a 256x3x32x32 batch with 256 different times, beside a gathered table of cumulative laws."""
    from rich.console import Console
    from rich.table import Table

    from blackout.bench import processes

    table = Table("way of drawing", "ms", "million/s", "peak MiB", "faster", "memory")
    baseline = None
    for m in processes.run():
        if "gathered" in m.name:
            baseline = m
        assert baseline is not None
        table.add_row(
            m.name,
            f"{m.seconds * 1e3:.0f}",
            f"{m.draws_per_second / 1e6:.1f}",
            f"{m.peak_mib:.0f}",
            f"{baseline.seconds / m.seconds:.1f}x",
            f"1/{baseline.peak_mib / max(m.peak_mib, 1e-9):.0f}",
        )
    Console().print(table)


def main() -> None:
    try:
        app()
    except ValueError as error:
        sys.stderr.write(f"blackout: {error}\n")
        sys.exit(2)
    except OSError as error:
        sys.stderr.write(f"blackout: {error}\n")
        sys.exit(1)
