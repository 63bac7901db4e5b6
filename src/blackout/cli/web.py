"""blackout web."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer


def web(
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN_OR_NAME", help="run folders to offer, before those that ship"),
    ] = None,
    runs: Annotated[Path, typer.Option(help="a folder of run folders, offered too, if it is there")] = Path("runs"),
    port: Annotated[
        int | None, typer.Option(help="port on this machine; 0: any", show_default="8000, or any if it is taken")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = True,
    device: Annotated[str, typer.Option(help="auto (CUDA if there is one), cpu, cuda, cuda:1, ...")] = "auto",
) -> None:
    """A page on this machine: generate, compare samplers, fill in pictures, and see the theory move.

    It is bound to 127.0.0.1, loads nothing from elsewhere, and writes nothing.
    """
    from blackout.cli.sample import device_by_name

    where = device_by_name(device)
    try:
        from blackout.web.serve import run
    except ModuleNotFoundError as error:
        raise ImportError(f"the page needs {error.name}: pip install 'blackout-diffusion[web]'") from None
    from blackout.web.models import Catalogue

    catalogue = Catalogue(folders or [], runs, where)
    with contextlib.suppress(KeyboardInterrupt):  # raised again by the server once it has ended, or not, in a script
        run(catalogue, port, open_browser, device, typer.echo)
    typer.echo("stopped")
