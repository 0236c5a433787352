"""Real text to train on: finding it, telling it from binary data, reading a bounded amount of it.

The result is one run of bytes in which every document ends with :data:`SEPARATOR`, the byte that
no text holds.
"""

import codecs
import os
import stat
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from rankscope.protocol.exits import UserError

SEPARATOR = 0
NOT_SOURCES = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
TEXT_CONTROLS = b"\t\n\v\f\r\b\x1b"
MAX_CONTROL_SHARE = 0.05
MAX_UNDECODABLE_SHARE = 0.3


def read_text(path: Path | None, max_bytes: int) -> bytes:
    """At most ``max_bytes`` bytes of the file or folder ``path``; None is the standard library.

    A folder is read in a fixed order (files by name, then folders by name), without hidden and
    binary files. Raises :class:`UserError` when there is no text to be had.
    """
    if path is None:
        return read_folder(Path(sysconfig.get_path("stdlib")), max_bytes, suffix=".py")
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"--text {path}: {reason(error)}; name a file or folder of text") from None
    if stat.S_ISDIR(mode):
        return read_folder(path, max_bytes)
    if not stat.S_ISREG(mode):
        raise UserError(f"--text {path} is neither a file nor a folder; name one that is")
    return read_one(path, max_bytes)


def read_one(path: Path, max_bytes: int) -> bytes:
    """The first ``max_bytes`` bytes of a file named by the user, which must be text."""
    try:
        content = head(path, max_bytes)
    except OSError as error:
        raise UserError(f"--text {path}: {reason(error)}; name a file you can read") from None
    if not content.strip():
        raise UserError(f"--text {path} is empty; name a file with text in it")
    if not is_text(content):
        raise UserError(f"--text {path} is binary, not text; name a file of UTF-8 text")
    return content + bytes([SEPARATOR])


def read_folder(folder: Path, max_bytes: int, suffix: str = "") -> bytes:
    """The text files under ``folder`` whose names end in ``suffix``, one after another."""
    read = bytearray()
    for path in files(folder):
        room = max_bytes - len(read)
        if room <= 0:
            break
        if not path.name.endswith(suffix):
            continue
        try:
            content = head(path, room)
        except OSError:  # a file that went away or is closed to us is not part of the text
            continue
        if content.strip() and is_text(content):
            read += content
            read.append(SEPARATOR)
    if not read:
        raise UserError(f"{folder} holds no text files; name a file or folder of text with --text")
    return bytes(read)


def files(folder: Path) -> Iterator[Path]:
    """Plain files under ``folder`` in a fixed order, without hidden ones and test data."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if n not in NOT_SOURCES and not n.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path


def head(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(max_bytes)


def is_text(content: bytes) -> bool:
    """Whether ``content``, perhaps cut short, reads as text.

    Text has no NUL and few control characters. It is UTF-8, or at least mostly ASCII, as prose in
    an old 8-bit encoding is.
    """
    if SEPARATOR in content:
        return False
    controls = bytes(set(range(32)) - set(TEXT_CONTROLS))
    if len(content) - len(content.translate(None, controls)) > MAX_CONTROL_SHARE * len(content):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)  # not final: the end may be cut
    except UnicodeDecodeError:
        beyond_ascii = len(content.translate(None, bytes(range(128))))
        return beyond_ascii <= MAX_UNDECODABLE_SHARE * len(content)
    return True


def reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
