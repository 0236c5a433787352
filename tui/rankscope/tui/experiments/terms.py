"""Terms of the table of memory that only a run can tell, from a comparison that was kept."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from rankscope.protocol.exits import UserError

MAX_BYTES = 64 << 20


class Terms(NamedTuple):
    activation: float
    gather: float


class _Row(msgspec.Struct):
    activation_bytes: float | None = None
    gather_bytes: float | None = None


class _Kept(msgspec.Struct):
    rows: list[_Row]


def measured_terms(file: Path) -> Terms:
    """The largest of each in ``file``, which is what ``rankscope compare --json`` printed.

    Raises :class:`UserError` for a file that is none.
    """
    try:
        with file.open("rb") as source:
            kept = msgspec.json.decode(source.read(MAX_BYTES), type=_Kept)
    except OSError as error:
        raise UserError(
            f"--measured {file}: {(error.strerror or 'cannot be read').lower()}"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        kept = _Kept([])
    activations = [row.activation_bytes for row in kept.rows if row.activation_bytes is not None]
    gathers = [row.gather_bytes for row in kept.rows if row.gather_bytes is not None]
    if not activations or min(*activations, *gathers, 0.0) < 0:
        raise UserError(
            f"--measured {file} holds no measured activations; make it with: "
            "rankscope compare --json > FILE"
        )
    return Terms(max(activations), max(gathers, default=0.0))
