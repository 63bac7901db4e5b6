"""The command line: `blackout COMMAND`. Exit status 0; 2 for bad input, 1 for anything else, each with one line.

Commands import what they need when they run, so that `--help` is fast and does not import torch.
"""

import codecs
import errno
import io
import os
import sys
import time
import unicodedata
import warnings
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import typer
import typer.core

from blackout.cells.commands import cells
from blackout.cli.config_options import config_command
from blackout.cli.data import data
from blackout.cli.distill import distill
from blackout.cli.evaluate import compare, evaluate
from blackout.cli.figures import figures
from blackout.cli.recipes import recipes
from blackout.cli.sample import sample
from blackout.cli.times import times
from blackout.cli.train import default_config, train
from blackout.cli.web import web

__all__ = ["app", "main"]

# typer exports this one kind of usage error only; its base class is common to all.
UsageError = cast(type[Exception], typer.BadParameter.__base__)

_TRACEBACK = "BLACKOUT_TRACEBACK"  # environment variable
_BAD_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)  # names that no file system has
_MAX_LENGTH = 1000  # characters of a reason: compilers write very long ones
_LAST_COLLECTIVE = 0.1  # seconds


class Interrupted(Exception):
    """Ctrl-C in a command without a message of its own for it."""


class Commands(typer.core.TyperGroup):
    """Reports an interrupt, which typer does not, and names options in errors about arguments."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except ValueError as error:
            command = self.commands.get(ctx.invoked_subcommand)
            if type(error) is not ValueError or command is None:
                raise
            raise ValueError(_with_option(str(error), command.params)) from error


app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: panels leave too little room in 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Generative diffusion on discrete states.",
)
app.command("train", cls=config_command(default_config))(train)
app.command("distill")(distill)
app.command("sample")(sample)
app.command("times")(times)
app.command("evaluate")(evaluate)
app.command("compare")(compare)
app.command("figures")(figures)
app.command("recipes")(recipes)
app.command("data")(data)
app.command("web")(web)
app.add_typer(cells, name="cells", cls=Commands)


def _version(wanted: bool) -> None:
    if wanted:
        from blackout import __version__

        typer.echo(f"blackout {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Generative diffusion on discrete states."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run a command and exit with its status."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")  # a long job must not fail at a character that a terminal lacks
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = app(prog_name="blackout", standalone_mode=False) or 0
    except (KeyboardInterrupt, Interrupted, typer.Abort):
        status = _fail("interrupted", 130)
    except UsageError as error:
        status = _fail(getattr(error, "format_message", error.__str__)(), 2)
    except (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        status = _fail(_reason(error), 2)
    except (OSError, ImportError, MemoryError, RuntimeError) as error:
        status = _fail(_reason(error), 2 if getattr(error, "errno", None) in _BAD_PATHS else 1)
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        status = _fail(f"internal error, {type(error).__name__}: {error}; {_TRACEBACK}=1 shows where", 1)
    _leave_process_group()
    sys.exit(status)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of this package as one line, others as Python shows them."""
    own = Path(filename).is_relative_to(Path(__file__).parents[1])
    sys.stderr.write(f"blackout: {message}\n" if own else warnings.formatwarning(message, category, filename, lineno))


def _leave_process_group() -> None:
    """Processes of torchrun that exit without this may abort in a thread of their process group.

    That thread may still need the GIL to end the last collective. Destroying the group waits for it with the GIL held,
    so the GIL is freed before, by sleeping.
    """
    if "torch" in sys.modules:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            time.sleep(_LAST_COLLECTIVE)
            distributed.destroy_process_group()


def _plain(error: UnicodeError) -> tuple[str, int]:
    """ASCII characters for those that a stream cannot encode."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate({ord("±"): "+-", ord("–"): "-"})
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return letters.encode("ascii", "replace").decode(), error.end


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _with_option(reason: str, params: list[Any]) -> str:
    """A reason that begins with the name of an argument, with its option instead: "--num-times must be ..."."""
    name, _, rest = reason.partition(" ")
    options = {param.name: param.opts[0] for param in params if param.param_type_name == "option"}
    return f"{options[name]} {rest}" if name in options and rest.startswith(("must ", "needs ", "cannot ")) else reason


def _fail(reason: str, status: int) -> int:
    reason = " ".join(reason.split())
    sys.stderr.write(f"blackout: {reason if len(reason) <= _MAX_LENGTH else reason[:_MAX_LENGTH] + ' ...'}\n")
    return status
