"""The memory table as text."""

from collections.abc import Mapping

from rankscope.protocol.budget import Extra, Inventory
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import wrapped
from rankscope.tui.words import numbers

NAMES = {
    "single": "one device",
    "ddp": "DDP",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "fsdp": "fully sharded",
    "hybrid": "hybrid",
}


def budget_text(
    found: Mapping[str, Mapping[str, float | int]],
    parameters: float,
    ranks: int,
    inventory: Inventory,
    device_bytes: float | None,
    shard: int | None,
    extra: Extra,
) -> list[str]:
    """One line a scheme: bytes a rank, whether it fits, the largest model, what a step sends."""
    columns = [Column("", right=False), Column("state"), Column("peak")]
    if device_bytes is not None:
        columns += [Column("fits", right=False), Column("largest")]
    columns.append(Column("sent"))
    rows = [_row(found, scheme, device_bytes, shard) for scheme in found["state_bytes"]]
    given = f"{inventory.parameter:g}+{inventory.gradient:g}+{inventory.optimizer:g}"
    head = f"{numbers.si(parameters)} parameters on {numbers.plural(ranks, 'rank')}"
    if device_bytes is not None:
        head += f", each with {_size(device_bytes)}"
    on_top = [
        f"{_size(size)} of {what}"
        for what, size in (
            ("activations", extra.activation),
            ("what is gathered (where parameters are sharded)", extra.gather),
            ("other things", extra.other),
        )
        if size
    ]
    return [
        head,
        f"{given} bytes a parameter: parameter, gradient, optimizer",
        *(wrapped(f"on top in a step: {', '.join(on_top)}", 80) if on_top else []),
        "",
        *table(columns, rows),
        "",
        "state and peak are a rank's; sent for one update, over a ring.",
        "Weights stored in fp32 without a copy take --bytes 4,4,8.",
    ]


def _row(
    found: Mapping[str, Mapping[str, float | int]],
    scheme: str,
    device_bytes: float | None,
    shard: int | None,
) -> list[str]:
    name = NAMES[scheme] + (f" ({shard} to a group)" if scheme == "hybrid" else "")
    peak = found["peak_bytes"][scheme]
    row = [name, _size(found["state_bytes"][scheme]), _size(peak)]
    if device_bytes is not None:
        row.append(toned("✓ yes", "good") if peak <= device_bytes else toned("✗ no", "bad"))
        row.append(numbers.si(found["largest_params"][scheme]))
    return [*row, _size(found["sent_bytes"][scheme])]


def _size(value: float) -> str:
    """Decimal units with four digits, as such tables are read: ``38.5 GB``, ``26.25 GB``."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor * 0.99995:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} B"
