"""Process groups as people name them, and who is where in them."""

from rankscope.protocol.shapes import CollectiveRow
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe


def name(row: CollectiveRow) -> str:
    """What the user calls the group, else its number."""
    if row.description == "default_pg":
        return "default"
    return safe(row.description) if row.description not in ("", "undefined") else f"#{row.group}"


def spread(row: CollectiveRow) -> str:
    """``18 233``, or ``18 232–18 233`` where ranks are behind."""
    most = numbers.count(row.enqueued_most)
    if row.enqueued_least == row.enqueued_most or not row.behind:
        return most
    return f"{numbers.count(row.enqueued_least)}–{most}"


def state(row: CollectiveRow) -> str:
    """``rank 1 behind, rank 0 waits``, ``rank 1 behind, 3 wait``; ``together`` when nobody is."""
    parts = []
    if row.behind:
        parts.append(f"{numbers.ranks(row.behind, 4)} behind")
    if len(row.waiting) == 1:  # a bare 1 beside a rank's number reads as another one
        parts.append(f"rank {row.waiting[0]} waits")
    elif row.waiting:
        parts.append(f"{numbers.count(len(row.waiting))} wait")
    return ", ".join(parts) or "together"
