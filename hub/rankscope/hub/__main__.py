"""The hub's process: ``--run-dir DIR`` serves a live run, ``--replay DIR`` an ended one."""

import argparse
import sys
import traceback
from pathlib import Path

from rankscope.protocol.exits import Exit, UserError


def main(arguments: list[str] | None = None) -> int:
    """Parse, serve, and give the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    from rankscope.protocol.rundir import RunDirectory

    try:
        if options.replay is not None:
            from rankscope.hub.replay import run_replay

            run_replay(RunDirectory(options.replay.expanduser().resolve()))
        else:
            from rankscope.hub.lifetimes import Lifetimes
            from rankscope.hub.live import run_hub

            lifetimes = Lifetimes(
                options.linger_s, options.client_left_s, options.after_run_end_s, options.nobody_s
            )
            directory = RunDirectory(options.run_dir.expanduser().resolve())
            run_hub(directory, options.bind, options.port or None, lifetimes)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return Exit.INTERRUPTED  # whoever asked for a replay is gone
    except Exception:  # noqa: BLE001 - the last resort
        traceback.print_exc()
        return Exit.BUG
    return Exit.FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rankscope.hub", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--run-dir", type=Path, metavar="DIR", help="serve this live run")
    which.add_argument("--replay", type=Path, metavar="DIR", help="serve this ended run")
    parser.add_argument("--bind", metavar="ADDRESS", help="listen here (default: loopback only)")
    parser.add_argument("--port", type=_port, metavar="N", help="default: a free one")
    # For tests: SPEC.md states the defaults.
    for name, default_s in (
        ("--linger-s", 60.0),
        ("--client-left-s", 10.0),
        ("--after-run-end-s", 5.0),
        ("--nobody-s", 600.0),
    ):
        parser.add_argument(name, type=float, default=default_s, help=argparse.SUPPRESS)
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; take one from 1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
