"""``rankscope``: finds the command, runs it, and turns every ending into an exit code.

A command's module is imported only when it is asked for, so that ``rankscope status`` does not
pay for the dashboard. Errors are one line on stderr; no traceback and no local variable is ever
printed, since locals hold keys.
"""

import contextlib
import errno
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence

from rankscope.protocol.exits import Exit, UserError
from rankscope.tui.arguments import Command, OneLineParser

COMMANDS = (
    "run",
    "demo",
    "top",
    "replay",
    "ls",
    "runs",
    "status",
    "ranks",
    "numerics",
    "incidents",
    "stacks",
    "collectives",
    "memory",
    "steps",
    "checkpoints",
    "check",
    "drill",
    "analyze",
    "budget",
    "compare",
    "scale",
    "checkpoint",
    "pause",
    "resume",
    "stop",
    "cancel",
    "verify-checkpoint",
    "hub",
    "grant",
    "doctor",
)
"""Each is a module of ``rankscope.tui.commands`` that keeps to :class:`Command`."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""How a disk says that it takes no more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. The entry point of ``rankscope``."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    try:
        code = _dispatch(given)
        sys.stdout.flush()
    except UserError as error:
        code = _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): end as other tools do, without a word.
        _drop_output()
        code = 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - the last resort: a bug gets a file, not a traceback
        code = _unforeseen(error)
    if arguments is None:  # all is said and done: what comes now ends nothing, and changes no code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return int(code)


def _unforeseen(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
        _drop_output()  # what refuses has no name: it is our output
        return _say(f"cannot write the output: {error.strerror}", Exit.USAGE)
    from rankscope.tui.crash import write_crash

    return _say(write_crash(error), Exit.BUG)


def _drop_output() -> None:
    """What is still buffered must not be flushed into a broken pipe or a full disk at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed, as cron and daemons leave them.

    Else the next file we open would take its number, and be written to in its place.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number is free
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _dispatch(given: list[str]) -> int:
    name = given[0] if given else "--help"
    if name in COMMANDS:
        return _run(name, given[1:])
    if name in ("--help", "-h", "help"):
        print(_help())
        return Exit.FINE
    if name == "--version":
        from importlib.metadata import version

        print(f"rankscope {version('rankscope')}")
        return Exit.FINE
    what = "option" if name.startswith("-") else "command"
    raise UserError(f"there is no {what} {name!r}{_meant(name)}; see: rankscope --help")


def _meant(name: str) -> str:
    """The command that was mistyped, as it seems."""
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, 1)
    return f", did you mean {near[0]}?" if near else ""


def _run(name: str, arguments: list[str]) -> int:
    command = _command(name)
    parser = OneLineParser(f"rankscope {name}", command.HELP)
    command.options(parser)
    parse = getattr(command, "parse", OneLineParser.parse_args)
    return int(command.run(parse(parser, arguments)))


def _command(name: str) -> Command:
    module: Command = importlib.import_module(f"rankscope.tui.commands.{name.replace('-', '_')}")
    return module


def _help() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: rankscope COMMAND [OPTIONS]",
            "",
            "Live, per-rank monitor of distributed PyTorch training, in the terminal.",
            "",
            *(f"  {name:<{width}}  {_command(name).HELP}" for name in COMMANDS),
            "",
            "rankscope COMMAND --help shows a command's options; --version the version.",
            "Exit codes: 0 fine, 1 a problem found, 2 usage, 3 unreachable, 4 timed out, 70 a bug,",
            "130 interrupted; run and demo pass their command's code through.",
        ]
    )


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):  # no one reads stderr any more; the exit code still tells
        print(f"rankscope: {_one_line(text)}", file=sys.stderr, flush=True)
    return code


def _one_line(text: str) -> str:
    """``text`` without line breaks and commands to the terminal: paths in it may hold both."""
    flat = re.sub(r"\s*[^\S ]\s*", " ", text.strip())
    return "".join(char if char.isprintable() else "?" for char in flat)


if __name__ == "__main__":
    sys.exit(main())
