"""Moments of a recording as an operator names them: ``end``, ``+90``, ``23:04:17``. Pure."""

import re
import time
from argparse import ArgumentTypeError
from datetime import datetime
from typing import TypeGuard

from rankscope.protocol.exits import UserError

NAMED = ("start", "end", "incident")
FORMS = "start, end, incident, +SECONDS, or a time such as 23:04:17"
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[T ])?(\d\d?):(\d\d)(?::(\d\d))?")


def moment(text: str) -> str | float:
    """One of ``NAMED``, seconds from the start (``+90``) as a number, or a time of the clock.

    That one stays as it is: which day is meant depends on the recording.
    """
    if text in NAMED:
        return text
    if re.fullmatch(r"\+\d+(\.\d+)?", text):
        return float(text)
    if _fields(text) is None:
        raise ArgumentTypeError(f"{text!r} is no moment: {FORMS}")
    return text


def is_clock(at: str | float) -> TypeGuard[str]:
    """Whether a :func:`moment` is a time of the clock."""
    return isinstance(at, str) and at not in NAMED


def clock_within(at: str, first_s: float, last_s: float, what: str, apart_s: float = 0.0) -> float:
    """The Unix time that ``at``, a time of the clock, means in ``what``, which goes from
    ``first_s`` to ``last_s``.

    Raises :class:`UserError` where it is not in it, nor within ``apart_s`` of it.
    """
    at_s = on_the_clock(at, last_s + apart_s)
    if not first_s - apart_s <= at_s <= last_s + apart_s:
        began, ended = map(_words, (first_s, last_s))
        raise UserError(f"--at {at}: {what} goes from {began} to {ended}")
    return at_s


def on_the_clock(text: str, last_s: float) -> float:
    """The Unix time that ``text`` names; without a day the last such time before ``last_s``."""
    fields = _fields(text)
    assert fields is not None
    day, of_day = fields
    if day is not None:
        return time.mktime((*day, *of_day, 0, 0, -1))
    at_s = time.mktime((*time.localtime(last_s)[:3], *of_day, 0, 0, -1))
    return at_s if at_s <= last_s else at_s - 86_400.0


def _fields(text: str) -> tuple[tuple[int, int, int] | None, tuple[int, int, int]] | None:
    """Year, month and day where they are given, and hour, minute and second; None for what no
    calendar and no clock has."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    date = (year, month, day) if found[1] else None
    try:
        datetime(*(date or (2000, 1, 1)), hour, minute, second)
    except ValueError:
        return None
    return date, (hour, minute, second)


def _words(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
