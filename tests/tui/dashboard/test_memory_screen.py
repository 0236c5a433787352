"""The screen of memory: every rank over the run, what grows on top."""

from dataclasses import replace

import msgspec
import pytest

from rankscope.protocol.shapes import MemoryRow, MemoryView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of, width_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.memory import MemoryScreen
from rankscope.tui.feed.poller import Wanted
from support.samples import FINDING, MEMORY_VIEW
from support.scenes import SCENES


def view(ranks: int = 8) -> MemoryView:
    rows = [
        MemoryRow(
            rank=rank,
            host=f"node-{rank // 4}",
            resident_bytes=512_000_000,
            peak_resident_bytes=600_000_000,
            allocated_bytes=None,
            reserved_bytes=None,
            peak_allocated_bytes=None,
            limit_bytes=1_000_000_000,
            growth_bytes_per_step=4_194_304.0 if rank == 5 else 0.0,
            full_at_step=132 if rank == 5 else None,
            history_bytes=[400_000_000 + (rank == 5) * at * 4_000_000 for at in range(40)],
            state_bytes=6_956_144,
            predicted_state_bytes=6_956_032.0,
        )
        for rank in range(ranks)
    ]
    return msgspec.structs.replace(
        MEMORY_VIEW, ranks=rows, steps=list(range(1, 41)), left_out=0, findings=[FINDING]
    )


def drawn(shown: MemoryView | None, width: int = 80, height: int = 24) -> list[str]:
    picture = Picture(replace(SCENES["healthy-8"](), view=shown), title="r")
    lines = MemoryScreen().layout(picture, Room(width, height, 0.0)).lines(height)
    assert max(map(width_of, lines)) <= width
    assert len(lines) <= height
    return [text_of(line).rstrip() for line in lines]


def test_a_rank_that_grows_shows_how_fast_and_until_when() -> None:
    """And the whole run as bars, over the steps that the head names."""
    lines = drawn(view())
    (row,) = [line for line in lines if line.split()[:1] == ["5"]]
    assert "+4.19 MB" in row
    assert "132" in row
    assert "▁" in row
    assert "█" in row
    assert any("steps 1–40" in line for line in lines)
    assert any(FINDING.headline[:30] in line for line in lines)


@pytest.mark.parametrize("last", [40, 205, 17_400, 1_000_000])
def test_the_steps_above_the_bars_are_whole_or_not_there(last: int) -> None:
    """A number that is cut is another number; the bars below span all of them."""
    steps = [last * at // 40 for at in range(1, 41)]
    for width in range(60, 130):
        lines = drawn(msgspec.structs.replace(view(), steps=steps), width)
        (head,) = [line for line in lines if line.split()[:1] == ["rank"]]
        if "–" in head:
            assert head.endswith(f"{steps[0]}–{last}")
        (row,) = [line for line in lines if line.split()[:1] == ["5"]]
        assert "█" in row or "▁" not in row


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_state_stands_beside_what_was_predicted(width: int) -> None:
    """For each rank, and below it what the prediction follows from; on 80 columns, too."""
    lines = drawn(view(), width)
    (row,) = [line for line in lines if line.split()[:1] == ["5"]]
    assert "6.96 MB   6.96 MB" in row
    assert any("869 504 parameters × (4+4+8) bytes" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (80, 24), (120, 40), (200, 50)])
def test_it_fits_every_terminal(width: int, height: int) -> None:
    """Also with nothing known yet."""
    drawn(view(), width, height)
    drawn(None, width, height)
    drawn(msgspec.structs.replace(view(), ranks=[], findings=[]), width, height)


def test_it_asks_for_its_view() -> None:
    """And nothing else."""
    assert MemoryScreen().view_wanted(Picture(SCENES["healthy-8"]())) == Wanted("memory")
