"""The application: its commands in the order in which a new user meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import ouzel
from ouzel.cli.console import exit_on_closed_pipe, out
from ouzel.cli.insights import plot_command, why_command
from ouzel.cli.queries import check_command, expand_command, explain_command, format_command, generate_command
from ouzel.cli.run import run_command
from ouzel.cli.watch import watch_command

EPILOG = """\b
Start here:
  ouzel generate shop --output readings.parquet
  ouzel generate shop --query > theft.query
  ouzel run theft.query --input readings.parquet

\b
Exit codes:
  0    everything went well
  1    a query, an input or a limit was wrong; the message says which
  2    the command itself was wrong
  130  interrupted by Ctrl-C; nothing half-written is left
  141  output pipe closed (SIGPIPE)
  143  terminated (SIGTERM); nothing half-written is left

Colours are off if NO_COLOR is set or the output is not a terminal.
"""

application = typer.Typer(
    name="ouzel",
    help="Find patterns in streams of events.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@application.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        out().print(f"ouzel {ouzel.__version__}")
        raise typer.Exit


_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run_command,
    "watch": watch_command,
    "why": why_command,
    "plot": plot_command,
    "check": check_command,
    "format": format_command,
    "explain": explain_command,
    "expand": expand_command,
    "generate": generate_command,
}

for _name, _command in _COMMANDS.items():
    application.command(name=_name)(exit_on_closed_pipe(_command))
