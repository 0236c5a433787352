"""``rankscope``: finds the command, runs it, and turns every ending into an exit code.

A command's module is imported only when it is asked for, so that ``rankscope status`` does not
pay for the dashboard. Errors are one line on stderr; no traceback and no local variable is ever
printed, since locals hold keys.
"""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import typer

from rankscope.protocol.exits import Exit, UserError

COMMANDS = {
    "run": "run",
    "demo": "demo",
    "top": "top",
    "ls": "ls",
    "status": "status",
    "ranks": "ranks",
    "incidents": "incidents",
    "check": "check",
    "doctor": "doctor",
}
"""Command → its module in ``rankscope.tui.commands``; each has a function ``command``."""

LATER = frozenset(
    {
        *("collectives", "numerics", "memory", "stacks", "checkpoint", "pause", "resume", "stop"),
        *("cancel", "verify-checkpoint", "drill", "replay", "analyze", "budget", "scale"),
        *("compare", "grant"),
    }
)
"""Commands of the design that this version does not have."""

RAW = {"allow_interspersed_args": False}
"""For commands that take another command: what follows its first word is not ours to read."""

# click's UsageError, which typer does not export by name but derives BadParameter from.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def build(names: Sequence[str]) -> typer.Typer:
    """The application with the commands ``names``."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Live, per-rank monitor of distributed PyTorch training, in the terminal.",
    )
    app.callback()(_group)
    for name in names:
        module = importlib.import_module(f"rankscope.tui.commands.{COMMANDS[name]}")
        app.command(name, context_settings=RAW if name == "run" else None)(module.command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. The entry point of ``rankscope``."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = _dispatch(given)
        sys.stdout.flush()
    except UserError as error:
        code = _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): end as other tools do, without a word.
        # What is still buffered must not be flushed into the broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - the last resort: a bug gets a file, not a traceback
        from rankscope.tui.crash import write_crash

        code = _say(write_crash(error), Exit.BUG)
    return int(code)


def _dispatch(given: list[str]) -> int:
    name = given[0]
    if name in LATER:
        raise UserError(f"rankscope {name}: not available in this version")
    if name == "--version":
        from importlib.metadata import version

        print(f"rankscope {version('rankscope')}")
        return Exit.FINE
    names = [name] if name in COMMANDS else list(COMMANDS)
    try:
        result = typer.main.get_command(build(names)).main(
            args=given, prog_name="rankscope", standalone_mode=False
        )
    except UsageError as error:
        words = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        where = f"rankscope {name}" if name in COMMANDS else "rankscope"
        raise UserError(f"{_one_line(words)}; see: {where} --help") from None
    return int(result or 0)


def _group() -> None:
    """Live, per-rank monitor of distributed PyTorch training, in the terminal."""


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):  # no one reads stderr any more; the exit code still tells
        print(f"rankscope: {_one_line(text)}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
