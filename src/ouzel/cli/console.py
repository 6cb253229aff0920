"""Code that all commands share: consoles, errors and warnings."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from ouzel.cli import READER_GONE
from ouzel.errors import OuzelError

WRONG = 1

Command = TypeVar("Command", bound=Callable[..., Any])


class PipedConsole(Console):
    """A console whose output pipe may be closed."""

    def on_broken_pipe(self) -> None:
        _leave()


def out(*, stderr: bool = False) -> Console:
    """A console for standard output or standard error. rich prints no colours if NO_COLOR is set, or if the output is
    not a terminal. Highlighting and wrapping are off, because they would change what is printed.
    """
    return PipedConsole(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def complain(error: OuzelError, name: str | None = None) -> None:
    """Print an error that a user can correct, as one message."""
    where = f"  {name}\n" if name else "  "
    out(stderr=True).print(Text.assemble(("error", "bold red"), f"{where}{error.render(options=True)}"))


def caution(text: str) -> None:
    """Print a warning that does not stop the command."""
    out(stderr=True).print(text, style="yellow")


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a warning of Ouzel as a sentence, without the line of code. Drop warnings of other libraries."""
    if category.__module__ == OuzelError.__module__:
        caution(str(message))


def exit_on_closed_pipe(command: Command) -> Command:
    """Exit with 141 if the reader of the output, such as `head`, has closed the pipe. typer would exit with 1."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except BrokenPipeError:
            _leave()

    return run  # type: ignore[return-value]


def _leave() -> None:
    # Discard what is still in the buffers, or Python would report the closed pipe again at shutdown.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    raise SystemExit(READER_GONE)


def report_errors(command: Command) -> Command:
    """Turn every error that a user can cause into one message and exit code 1, without a traceback."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            try:
                return command(*arguments, **options)
            except OuzelError as error:
                complain(error)
                raise typer.Exit(WRONG) from None

    return run  # type: ignore[return-value]
