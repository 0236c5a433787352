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
    title, row, more, *rest = text(MEMORY_VIEW, 100)
    assert title.split() == [
        *("rank", "now", "peak", "limit", "a", "step", "full", "at", "state", "predicted", "host")
    ]
    assert row.split() == [
        *("1", "512", "MB", "600", "MB", "1.00", "GB", "+4.19", "MB", "step", "132"),
        *("6.96", "MB", "6.96", "MB", "gpu-node-17"),
    ]
    assert more == "3 ranks with less to tell are left out"
    assert rest[-2:] == ["", "nothing grows that does not come back"]


def test_what_was_predicted_is_told_with_what_it_follows_from() -> None:
    """And stays on a terminal of 80 columns, which loses hosts first."""
    lines = text(MEMORY_VIEW)
    assert "predicted: 869 504 parameters × (4+4+8) bytes, fully sharded over 2 ranks" in lines
    assert "predicted" in lines[0]
    assert max(map(len, lines)) <= 80


def test_nothing_is_said_of_a_state_that_nobody_counted() -> None:
    """As before the second update."""
    row = msgspec.structs.replace(
        MEMORY_VIEW.ranks[0], state_bytes=None, predicted_state_bytes=None
    )
    lines = text(msgspec.structs.replace(MEMORY_VIEW, ranks=[row], prediction=""))
    assert not [line for line in lines if line.startswith(("state:", "predicted:"))]


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
    (_, line, *_) = text(msgspec.structs.replace(MEMORY_VIEW, ranks=[row]), 140)
    assert "2.00 GB  3.00 GB" in line
    assert line.split()[-2:] == ["4.00", "GB"]


def test_growth_that_is_not_known_is_a_dash() -> None:
    """And none is 0."""
    assert (growth(None), growth(0.0), growth(1e6)) == ("–", "0", "+1.00 MB")


def test_nothing_known_is_said() -> None:
    """No table of nothing."""
    view = msgspec.structs.replace(MEMORY_VIEW, ranks=[])
    assert text(view) == ["no rank has told its memory yet"]
