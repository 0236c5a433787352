"""Rows that an interrupted drill has done already: one JSON line each, appended as they come."""

from pathlib import Path

import msgspec

from rankscope.protocol import jsontext
from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import DrillRow
from rankscope.tui.drill.plan import Setting


class Entry(msgspec.Struct):
    """One line of ``--out FILE``: a row and how its run was started."""

    trainer: str
    ranks: int
    attach: str
    row: DrillRow


class Book:
    """The file of ``--out``; without one nothing is kept."""

    def __init__(self, path: Path | None, setting: Setting) -> None:
        """Raises :class:`UserError` when the file cannot be written or is something else."""
        self._path = path
        self._setting = setting
        self._done: dict[str, DrillRow] = {}
        if path is None:
            return
        try:
            with path.open("ab"):
                pass
            lines = path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise UserError(f"--out {path}: {(error.strerror or 'cannot write').lower()}") from None
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):  # what a killed drill left half written
            path.write_bytes(b"".join(whole))
        for line in whole:
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise UserError(
                    f"--out {path} holds something else than a drill's rows; name another file"
                ) from None
            if (entry.trainer, entry.ranks, entry.attach) == _key(setting):
                self._done[entry.row.fault] = entry.row

    def get(self, fault: str) -> DrillRow | None:
        """The row of ``fault`` in this setting, if it was done before."""
        return self._done.get(fault)

    def add(self, row: DrillRow) -> None:
        if self._path is None:
            return
        entry = Entry(*_key(self._setting), row)
        with self._path.open("ab", buffering=0) as file:
            file.write(jsontext.dumps(entry).encode() + b"\n")


def _key(setting: Setting) -> tuple[str, int, str]:
    return setting.trains, setting.ranks, "" if setting.script else setting.attach
