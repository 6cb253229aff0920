"""The command line: `ouzel run`, `watch`, `why`, `plot` and the rest."""

import signal
import sys
from typing import Any

INTERRUPTED, READER_GONE, TERMINATED = 130, 141, 143


def main() -> None:
    """Run the command line. If the extra `cli` is not installed, say how to install it."""
    # SIGTERM cleans up like Ctrl-C: half-written files are removed.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        # This takes a second or two, during which the user may press Ctrl-C.
        from ouzel.cli.app import application
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(f"the ouzel command needs {error.name}: pip install 'ouzel[cli]'\n")
        raise SystemExit(1) from None
    try:
        application()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _terminated(number: int, frame: Any) -> None:
    raise SystemExit(TERMINATED)
