"""Commands that are meant to be pasted into another terminal: each names the run it is about.

The plain form (``rankscope stacks --rank 1``) means the only live run, which may be another one by
the time it is typed. So whatever is shown or logged says which: the start of the run's id where
that is found from any terminal of the user, else its directory, else endpoint and key.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from rankscope.protocol.rundir import runs_home

STAMP_CHARS = len("20261129-163000")
"""So much of an id that was given by time is its own: later runs begin otherwise."""

OF_A_RUN = (
    *("cancel", "check", "checkpoint", "checkpoints", "collectives", "grant operator"),
    *("grant viewer", "hub", "incidents", "memory", "numerics", "pause", "ranks", "replay"),
    *("resume", "stacks", "status", "steps", "stop", "top"),
)
"""What can be followed by a run."""

_GIVEN_TIME = re.compile(r"\d{8}-\d{6}-[0-9a-z]{6}")
_VERBS = "|".join(sorted(map(re.escape, OF_A_RUN), key=len, reverse=True))
_BARE = r"[A-Za-z0-9_@%+=:,./-]*[A-Za-z0-9_@%+=/-]"
"""Needs no quotes. What ends in a full stop gets them: a sentence could end there, too."""
_WORD = rf"""(?:~/)?(?:\$?'[^']*'(?:"'"'[^']*')*|{_BARE})"""
"""Whatever :func:`_word` and ``shlex.quote`` make."""
_RUN = rf"(?=\S*[\d/]){_WORD}"
"""A run by its id or directory; no word of prose has a digit or a slash."""
_ELSEWHERE = rf"--endpoint \S+ --key {_WORD}"
_COMMAND = re.compile(
    rf"\brankscope (?P<verb>{_VERBS})(?![-\w])(?P<run> (?:{_ELSEWHERE}|{_RUN}))?"
    r"(?P<options>(?: --(?:stop|json)| --rank \d+)*)"
)
_TO_COPY = re.compile(
    "|".join(
        (
            _COMMAND.pattern,
            r"\bpy-spy dump(?: --native)? --pid \d+",
            r"\b(?:ps -p \d+(?:,\d+)*|kill (?:-CONT )?\d+(?: \d+)*)",
            r"\bdmesg \| grep -i \w+",
            r"\bnvidia-smi (?:-q -d [A-Z,]+|nvlink -e)(?: -i \d+)?",
            r"\btr '\\0' '\\n' < /proc/\d+/environ",
            rf"{_WORD} -m rankscope\.hub --run-dir {_WORD} &",
        )
    )
)


def words_for(directory: Path, environ: Mapping[str, str] = os.environ) -> str:
    """How the run in ``directory`` is named to a command in any other terminal of this user.

    ``environ`` is asked for the home folder alone: another terminal has no ``RANKSCOPE_HOME``.
    """
    run = directory.name
    if directory.parent == runs_home({}) and any(map(str.isdigit, run)):
        return _short(directory) if _GIVEN_TIME.fullmatch(run) else _word(run)
    return quoted(directory.absolute(), environ)


def words_elsewhere(endpoint: str, key_file: Path, environ: Mapping[str, str] = os.environ) -> str:
    """How a run is named that is known by its hub's endpoint and a key file."""
    return f"--endpoint {endpoint} --key {quoted(key_file.absolute(), environ)}"


def quoted(path: Path, environ: Mapping[str, str] = os.environ) -> str:
    """``path`` for a shell, below the home folder as ``~/…``."""
    home = environ.get("HOME", "")
    if len(home) > 1 and path.is_relative_to(home) and path != Path(home):
        return f"~/{_word(str(path.relative_to(home)))}"
    return _word(str(path))


def named(text: str, words: str) -> str:
    """``text`` with every command that can name a run naming the one that ``words`` mean."""
    if not words or "rankscope " not in text:
        return text

    def with_run(match: re.Match[str]) -> str:
        return f"rankscope {match['verb']} {words}{match['options']}"

    return _COMMAND.sub(with_run, text)


def pieces(text: str) -> list[tuple[str, bool]]:
    """``text`` in parts, in order, and whether each is a command to be copied whole."""
    found: list[tuple[str, bool]] = []
    end = 0
    for match in _TO_COPY.finditer(text):
        found += [(text[end : match.start()], False), (match[0], True)]
        end = match.end()
    found.append((text[end:], False))
    return [piece for piece in found if piece[0]]


def _word(text: str) -> str:
    """``text`` as one word for a shell, on one line and without a command to the terminal.

    Where characters that cannot be shown are in it, it is in the form that bash, zsh and ksh read
    (``$'a\\012b'``).
    """
    if re.fullmatch(_BARE, text):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    return "$'" + "".join(map(_shown, text)) + "'"


def _shown(char: str) -> str:
    if char.isprintable() and char not in "'\\":
        return char
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(char))


def _short(directory: Path) -> str:
    """The stamp of the id, where no other run has it."""
    stamp = directory.name[:STAMP_CHARS]
    try:
        with os.scandir(directory.parent) as entries:
            same = sum(entry.name.startswith(stamp) for entry in entries)
    except OSError:
        return directory.name
    return stamp if same == 1 else directory.name
