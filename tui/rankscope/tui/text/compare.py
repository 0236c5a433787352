"""DDP beside FSDP2 as text: a table, a chart, and what the figures are."""

from collections.abc import Sequence
from itertools import groupby

from rankscope.protocol.experimentshapes import CompareRow, Comparison
from rankscope.tui.text.bars import Bar, bars
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import wrapped
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

COLUMNS = (
    Column("", right=False),
    Column("state"),
    Column("table"),
    Column("peak"),
    Column("at most"),
    Column("step"),
    Column("loss"),
    Column("differs"),
    Column("sends"),
    Column("counted"),
)

MOST_TOLD = 3
"""So many trainings are told with their losses."""
SHOWN = 8
"""Losses of each, evenly spread from the first to the last."""


def compare_text(found: Comparison, width: int = 80, utf8: bool = True) -> list[str]:
    """Everything; columns that do not fit are left out, from the right."""
    where = f"{found.device}, {found.backend}" if found.backend else found.device
    lines = [
        f"DDP beside FSDP2 on {numbers.plural(found.ranks, 'rank')} ({where}), the same batches",
        f"{numbers.plural(found.updates, 'update')} of {found.batch_size} × {found.seq_len} tokens "
        f"a rank; the last {found.timed_updates} are timed",
        "",
    ]
    lines += _table(found.rows, width)
    lines += _refusals(found.rows, width)
    lines += _chart(found.rows, width, utf8)
    lines.append("")
    for told in [*_losses(found.rows), *_laid(found.rows), *_explained(found)]:
        lines += wrapped(told, width)
    for note in found.notes:
        lines += wrapped(safe(note), width, "warn")
    return lines


def setting(row: CompareRow) -> str:
    """``4 layers, fp32``; and what is recomputed, where something is."""
    words = [numbers.plural(row.layers, "layer"), row.precision]
    if row.recompute != "none":
        words.append("all recomputed" if row.recompute == "full" else "every other recomputed")
    return ", ".join(words)


def name(row: CompareRow) -> str:
    if row.trainer == "ddp":
        return "DDP"
    return "FSDP2" if row.reshard_after_forward else "FSDP2 kept"


def _table(rows: Sequence[CompareRow], width: int) -> list[str]:
    title, *body = table(COLUMNS, [_cells(row) for row in rows], width, indent="  ")
    lines = [title]
    told = iter(body)
    for _, group in groupby(rows, key=setting):
        these = list(group)
        lines.append(
            f"{setting(these[0])}: {numbers.count(these[0].parameters)} parameters, "
            f"width {these[0].dim}"
        )
        lines += [next(told) for _ in these]
    return lines


def _cells(row: CompareRow) -> tuple[str, ...]:
    difference = row.relative_difference
    return (
        name(row),
        size(row.state_bytes),
        size(row.predicted_state_bytes),
        size(row.peak_bytes),
        size(row.predicted_peak_bytes),
        numbers.span(row.step_s),
        toned("refused", "bad") if row.refused else numbers.loss(row.final_loss),
        "" if difference is None else f"{difference:.1e}",
        size(row.sent_bytes),
        size(row.counted_sent_bytes),
    )


def size(value: float | None) -> str:
    return numbers.size_bytes(None if value is None else round(value))


def _refusals(rows: Sequence[CompareRow], width: int) -> list[str]:
    lines: list[str] = []
    for row in rows:
        if row.refused:
            told = f"✗ {name(row)} ({setting(row)}) is refused: {safe(row.refused)}"
            lines += wrapped(told, width, "bad")
    return lines


def _chart(rows: Sequence[CompareRow], width: int, utf8: bool) -> list[str]:
    drawn = []
    for row in rows:
        state = row.state_bytes if row.state_bytes is not None else row.predicted_state_bytes
        whole = row.peak_bytes if row.peak_bytes is not None else state
        label = f"{row.layers} {row.precision}"
        if row.recompute != "none":
            label += f" {row.recompute}"
        told = size(whole) + (" refused" if row.refused else "")
        drawn.append(Bar((label, name(row)), (state or 0.0, (whole or 0.0) - (state or 0.0)), told))
    return ["", *bars("bytes of a rank", ("state", "more in an update"), drawn, width, utf8)]


def _losses(rows: Sequence[CompareRow]) -> list[str]:
    """Some of each training's losses, where few enough trainings are told."""
    if len(rows) > MOST_TOLD:
        return []
    told = []
    for row in rows:
        if row.losses:
            last = len(row.losses) - 1
            places = sorted({at * last // (SHOWN - 1) for at in range(SHOWN)})
            some = " ".join(numbers.loss(row.losses[at]) for at in places)
            told.append(f"losses of {name(row)}: {some}")
    return told


def _laid(rows: Sequence[CompareRow]) -> list[str]:
    """How parameters lie, said once for each trainer."""
    told: dict[str, str] = {}
    for row in rows:
        if row.placements:
            ways = ", ".join(f"{count} {safe(way)}" for way, count in row.placements.items())
            told.setdefault(row.trainer, f"{name(row).split()[0]}'s parameters: {ways}")
    return ["; ".join(told.values())] if told else []


def _explained(found: Comparison) -> list[str]:
    factors = next((row.factors for row in found.rows if row.factors), [])
    each = "+".join(f"{factor:g}" for factor in factors)
    lines = [
        "state: parameters, gradients and optimizer of a rank, counted; table: the same at "
        f"{each} bytes a parameter, all stored in fp32 (mixed-precision Adam with 16-bit copies "
        "is 2+2+12)",
        "peak: tensor bytes at once, counted in an update that is not timed; at most: state, "
        "activations as measured on a plain model, and what FSDP2 gathers and reduces",
        "step: median of the slowest rank; differs: from DDP's final loss, relatively",
    ]
    if any(row.reshard_after_forward is False for row in found.rows):
        lines.append("kept: parameters gathered in forward stay for backward")
    return lines
