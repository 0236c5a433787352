"""``rankscope replay``: the dashboard over a recording."""

import sys
import time
from argparse import ArgumentTypeError, Namespace
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rankscope.protocol.exits import UserError
from rankscope.tui.arguments import OneLineParser
from rankscope.tui.moments import clock_within, is_clock, moment

if TYPE_CHECKING:
    from rankscope.protocol.shapes import Recording

HELP = "the dashboard over a recording: play, pause, go to incidents"

MAX_SPEED = 64.0
APART_S = 60.0
"""The recording may begin and end so long before or after what is written of the run."""


def options(parser: OneLineParser) -> None:
    parser.add_argument(
        "wanted",
        nargs="?",
        metavar="RECORDING",
        help="a run (id or its start, name, directory) or the recording folder in it; "
        "without it the live run, else the newest",
    )
    parser.add_argument(
        "--at",
        type=moment,
        default="start",
        metavar="WHEN",
        help="where to begin: start (the default, playing), end, incident, +SECONDS from the "
        "start, or a time such as 23:04:17",
    )
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="FACTOR", help="0.25 to 64; + and - change it"
    )


def _speed(text: str) -> float:
    value = float(text)
    if not 0.25 <= value <= MAX_SPEED:
        raise ArgumentTypeError(f"{text} is not 0.25 to {MAX_SPEED:g}")
    return value


def run(given: Namespace) -> int:
    from pathlib import Path

    from rankscope.protocol.paths import expanded, resolved
    from rankscope.protocol.shapes import Recording
    from rankscope.tui import reach, source, view

    wanted = given.wanted
    if wanted is not None and Path(wanted).name == "recording":
        wanted = str(resolved(expanded(wanted)).parent)
    directory = reach.choose(wanted)
    if is_clock(given.at):  # told before its recording is read
        info = directory.read_info()
        last_s = time.time() if info.ended_s is None else info.ended_s
        clock_within(given.at, info.created_s, last_s, "the run", APART_S)
    if not view.on_terminal():
        raise UserError("replay needs a terminal; in a pipe use: rankscope status RUN")
    # A hub has to read it first, which takes a moment and, of a large run, seconds.
    print(f"reading the recording of {directory.run} ...", end="", file=sys.stderr, flush=True)
    try:  # what is wrong is told before the screen is taken
        with ExitStack() as closing:
            client = closing.enter_context(reach.connect_past(directory))
            recording = source.ask(client, "recording", Recording)
            begin = _begin(given.at, recording)
            closing.pop_all()  # the dashboard goes on with it: to start one takes seconds
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return view.show_past(directory, client, begin=begin, speed=given.speed)


def _begin(at: str | float, recording: "Recording") -> str | float:
    """``at``, a time of the clock as Unix time. Raises ``UserError`` where that is not in it."""
    if is_clock(at):
        return clock_within(at, recording.first_s, recording.last_s, "the recording")
    return at
