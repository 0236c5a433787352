"""``rankscope memory`` in words."""

import msgspec

from rankscope.protocol.shapes import MemoryView
from rankscope.tui.text.memory import growth, memory_text
from rankscope.tui.text.output import untoned
from support.samples import FINDING, MEMORY_VIEW


def text(view: MemoryView, width: int = 80) -> list[str]:
    return [untoned(line) for line in memory_text(view, width)]


def test_a_rank_is_one_line_that_fits() -> None:
    """What it takes, its limit, its growth, and when it will be full; then what was found."""
    title, row, more, blank, found = text(MEMORY_VIEW)
    assert title.split() == ["rank", "now", "peak", "limit", "a", "step", "full", "at", "host"]
    assert row.split() == [
        *("1", "512", "MB", "600", "MB", "1.00", "GB", "+4.19", "MB", "step", "132"),
        "gpu-node-17",
    ]
    assert more == "3 ranks with less to tell are left out"
    assert (blank, found) == ("", "nothing grows that does not come back")


def test_a_finding_is_told_below() -> None:
    """With its evidence and the next step."""
    view = msgspec.structs.replace(MEMORY_VIEW, findings=[FINDING], left_out=0)
    lines = text(view)
    assert FINDING.headline in lines
    assert f"  next: {FINDING.next}" in lines


def test_of_a_gpu_its_own_memory_is_shown() -> None:
    """Not the process's on the host."""
    row = msgspec.structs.replace(
        MEMORY_VIEW.ranks[0],
        allocated_bytes=2_000_000_000,
        peak_allocated_bytes=3_000_000_000,
        reserved_bytes=4_000_000_000,
    )
    (_, line, *_) = text(msgspec.structs.replace(MEMORY_VIEW, ranks=[row]), 120)
    assert "2.00 GB  3.00 GB" in line
    assert line.split()[-2:] == ["4.00", "GB"]


def test_growth_that_is_not_known_is_a_dash() -> None:
    """And none is 0."""
    assert (growth(None), growth(0.0), growth(1e6)) == ("–", "0", "+1.00 MB")


def test_nothing_known_is_said() -> None:
    """No table of nothing."""
    view = msgspec.structs.replace(MEMORY_VIEW, ranks=[])
    assert text(view) == ["no rank has told its memory yet"]
