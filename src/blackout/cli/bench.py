"""blackout bench."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from blackout.bench.network import Speed

bench = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Measure speed and memory, as ratios within one run.",
)

Preset = Annotated[str, typer.Option(help="network: paper, small, tiny")]
Batch = Annotated[int, typer.Option(help="images of 3x32x32 at a time")]
Compile = Annotated[bool, typer.Option("--compile/--no-compile", help="torch.compile the network")]
Repeats = Annotated[int, typer.Option(help="measurements, of which the median counts")]


@bench.callback()
def group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@bench.command("processes")
def processes() -> None:
    """Forward draws beside a gathered table. A batch of 256x3x32x32 with 256 different times."""
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


@bench.command("small")
def small(
    steps: Annotated[int, typer.Option(help="training steps of each model")] = 300,
    images: Annotated[int, typer.Option(help="held-out digits")] = 128,
) -> None:
    """Heads and numbers of steps on seven-segment digits: minutes on two cores."""
    from rich.console import Console
    from rich.table import Table

    from blackout import validate
    from blackout.bench.small import run

    for title, unit, rows in run(validate.whole("steps", steps, 1), validate.whole("images", images, 1)):
        table = Table(title, unit, "ratio to the first")
        for name, value in rows:
            table.add_row(name, f"{value:.4g}", f"{value / rows[0][1]:.2f}")
        Console().print(table)


@bench.command("train")
def train(preset: Preset = "paper", batch: Batch = 256, compiled: Compile = True, repeats: Repeats = 20) -> None:
    """Whole training steps beside a large matrix product."""
    from blackout.bench.network import train_speed

    _show(train_speed(*_checked(preset, batch, repeats), compiled, repeats))


@bench.command("sample")
def sample(preset: Preset = "paper", batch: Batch = 512, compiled: Compile = True, repeats: Repeats = 20) -> None:
    """Passes of the network beside a large matrix product."""
    from blackout.bench.network import sample_speed

    _show(sample_speed(*_checked(preset, batch, repeats), compiled, repeats))


def _checked(preset: str, batch: int, repeats: int) -> tuple[str, int]:
    from blackout import validate
    from blackout.network import PRESETS

    validate.whole("repeats", repeats, 1)
    return validate.choice("preset", preset, tuple(PRESETS)), validate.whole("batch", batch, 1)


def _show(speed: "Speed") -> None:
    rate, share = speed.batch / speed.seconds, speed.tflops / speed.ceiling_tflops
    lines = {
        speed.name: f"{speed.seconds * 1e3:.1f} ms for {speed.batch} images, {rate:,.0f} images/s",
        "matrix work": f"{speed.tflops:.3g} TFLOP/s",
        "ceiling, measured": f"{speed.ceiling_tflops:.3g} TFLOP/s, of which this is {share:.0%}",
    }
    total = sum(speed.shares.values())
    for name, seconds in speed.shares.items():
        lines[name] = f"{seconds * 1e3:.1f} ms, {seconds / total:.0%} of the kernels"
    for name, text in lines.items():
        typer.echo(f"{name:<35}{text}")
