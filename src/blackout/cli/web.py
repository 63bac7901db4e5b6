"""blackout web."""

import os
import secrets
import sys
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
    token: Annotated[
        str | None,
        typer.Option(envvar="BLACKOUT_TOKEN", help="token in the address of the page", show_default="a random one"),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="admit every user of this machine, without a token")
    ] = False,
    device: Device = "auto",
) -> None:
    """Serve a local web page: generate, compare, inpaint, theory.

    The server listens on 127.0.0.1 only; it loads nothing from the network and writes no files.
    """
    if no_token and token is not None:
        raise ValueError("--token and --no-token exclude each other, got both")
    torch_device = device_by_name(device)
    try:
        from blackout.web.access import Tokens
        from blackout.web.serve import serve
    except ModuleNotFoundError as error:
        raise ImportError(f"the page needs {error.name}: pip install 'blackout-diffusion[web]'") from None
    from blackout.web.models import Catalogue

    tokens = Tokens(None if no_token else secrets.token_urlsafe(24) if token is None else token)
    catalogue = Catalogue(folders or [], runs, torch_device)
    serve(catalogue, tokens, port, open_browser, device, typer.echo)
    typer.echo("stopped")
    sys.stdout.flush()
    os._exit(0)  # without waiting for a network pass, or for the end of Python, which takes seconds on a busy machine
