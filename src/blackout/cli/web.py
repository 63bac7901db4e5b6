"""blackout web."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from blackout.cli.completion import model_names
from blackout.cli.options import Device, device_by_name


def web(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN_OR_NAME", help="model folders or pretrained names, listed first", autocompletion=model_names
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="folder of run folders to list too, if it exists")] = Path("runs"),
    port: Annotated[
        int | None, typer.Option(help="local port; 0: any", show_default="8000, or any if it is taken")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = True,
    device: Device = "auto",
) -> None:
    """Serve a local web page: generate, compare samplers, inpaint, and explore the theory.

    The server listens on 127.0.0.1 only; it loads nothing from the network and writes no files.
    """
    torch_device = device_by_name(device)
    try:
        from blackout.web.serve import serve
    except ModuleNotFoundError as error:
        raise ImportError(f"the page needs {error.name}: pip install 'blackout-diffusion[web]'") from None
    from blackout.web.models import Catalogue

    catalogue = Catalogue(folders or [], runs, torch_device)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after shutdown, except in a script
        serve(catalogue, port, open_browser, device, typer.echo)
    typer.echo("stopped")
