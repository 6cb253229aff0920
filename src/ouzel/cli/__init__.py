"""The command line: `ouzel check` and `ouzel format`."""

import sys


def main() -> None:
    """Run the command line; without its extra, say how to install it."""
    try:
        from ouzel.cli.app import application
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(f"the ouzel command needs {error.name}: pip install 'ouzel[cli]'\n")
        raise SystemExit(1) from None
    application()
