"""``rankscope replay``: the dashboard over a recording."""

import re
import sys
import time
from argparse import ArgumentTypeError, Namespace
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rankscope.protocol.exits import UserError
from rankscope.tui.arguments import OneLineParser

if TYPE_CHECKING:
    from rankscope.protocol.shapes import Recording

HELP = "the dashboard over a recording: play, pause, go to incidents"

CLOCK = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[T ])?(\d\d?):(\d\d)(?::(\d\d))?")
MAX_SPEED = 64.0


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


def moment(text: str) -> str | float:
    """``start``, ``end``, ``incident``, ``+SECONDS``, or a local time of the clock.

    A time of the clock stays as it is: which day is meant depends on the recording.
    """
    if text in ("start", "end", "incident"):
        return text
    if re.fullmatch(r"\+\d+(\.\d+)?", text):
        return float(text)
    found = CLOCK.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(
            f"{text!r} is no moment: start, end, incident, +SECONDS, or a time such as 23:04:17"
        )
    return text


def on_the_clock(text: str, last_s: float) -> float:
    """The Unix time that ``text`` names; without a day the last such time before ``last_s``."""
    found = CLOCK.fullmatch(text)
    assert found is not None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    if year:
        return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    of_day = time.localtime(last_s)[:3]
    at_s = time.mktime((*of_day, hour, minute, second, 0, 0, -1))
    return at_s if at_s <= last_s else at_s - 86_400.0


def _speed(text: str) -> float:
    value = float(text)
    if not 0.25 <= value <= MAX_SPEED:
        raise ArgumentTypeError(f"{text} is not 0.25 to {MAX_SPEED:g}")
    return value


def run(given: Namespace) -> int:
    from pathlib import Path

    from rankscope.protocol.shapes import Recording
    from rankscope.tui import reach, source, view

    wanted = given.wanted
    if wanted is not None and Path(wanted).name == "recording":
        wanted = str(Path(wanted).expanduser().resolve().parent)
    directory = reach.choose(wanted)
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
    begin = at
    if isinstance(begin, str) and CLOCK.fullmatch(begin):
        begin = on_the_clock(begin, recording.last_s)
        if not recording.first_s <= begin <= recording.last_s:
            begun, ended = map(_words, (recording.first_s, recording.last_s))
            raise UserError(f"--at {at}: the recording goes from {begun} to {ended}")
    return begin


def _words(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
