"""How a run that hangs is ended, and what is left of it: in `status` and with the evidence."""

import msgspec
import pytest

from rankscope.protocol import shapes as s
from rankscope.protocol.pasting import pieces
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.evidence import evidence_lines
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.text.status import status_text
from rankscope.tui.words.ending import how_to_end, what_comes_of_it
from support.scenes import WAITS, finding, run
from support.world import World

MISSING = finding("missing-collective", [1], [0], "rank 1 never entered all_reduce #3")
NOTICE = msgspec.structs.replace(MISSING, severity="info")
SPOILING = finding("nonfinite-gradient", [1], [0], "NaN in the gradient of w on rank 1")
LAUNCHED: dict[str, object] = {"launcher_pid": 4711, "launcher_host": "node-a"}


def scene(state: s.State, found: list[s.Finding], **overview: object) -> Snapshot:
    return run(2, 2, gpu=False, state=state, findings=found, rows={0: WAITS}, overview=overview)


def told(snapshot: Snapshot) -> str:
    return how_to_end(snapshot.status, snapshot.overview)


@pytest.mark.parametrize(
    ("state", "found", "hangs"),
    [
        ("running", [MISSING], True),
        ("stalled", [MISSING], True),
        ("stalled", [], True),
        ("stalled", [SPOILING], True),
        ("running", [NOTICE], False),
        ("running", [SPOILING], False),
        ("running", [], False),
        ("paused", [MISSING], False),
        ("finished", [MISSING], False),
        ("failed", [MISSING], False),
    ],
)
def test_it_is_told_of_a_run_that_hangs_and_of_no_other(
    state: s.State, found: list[s.Finding], hangs: bool
) -> None:
    """On the page of the evidence and in the text alike."""
    snapshot = scene(state, found)
    assert snapshot.status is not None
    assert snapshot.overview is not None
    page = [text_of(line) for line in evidence_lines(Picture(snapshot), 80)]
    text = status_text(snapshot.status, snapshot.overview)
    assert any(line.startswith("  end  ") for line in page) is hangs
    assert any(line.startswith("    end   ") for line in text) is hangs
    assert bool(told(snapshot)) is hangs


def test_what_ends_it_can_be_pasted_where_the_launcher_is_known() -> None:
    """The launcher's process, with its machine; else where it was started."""
    words = told(scene("stalled", [MISSING], **LAUNCHED))
    assert words == "on node-a: kill 4711; or Ctrl-C where it was started"
    assert [piece for piece, to_copy in pieces(words) if to_copy] == ["kill 4711"]
    assert told(scene("stalled", [MISSING])).startswith("Ctrl-C where it was started")


def test_of_a_run_whose_launcher_was_killed_the_ranks_are_ended() -> None:
    """Ctrl-C reaches nobody then; they are named where they are few, and on one machine."""
    snapshot = scene("stalled", [MISSING], launcher_gone=True)
    assert snapshot.status is not None
    pids = " ".join(str(row.pid) for row in snapshot.status.ranks)
    words = told(snapshot)
    assert "Ctrl-C reaches nothing" in words
    assert [piece for piece, to_copy in pieces(words) if to_copy] == [f"kill {pids}"]
    apart = [msgspec.structs.replace(row, host=f"node-{row.rank}") for row in snapshot.status.ranks]
    spread = msgspec.structs.replace(snapshot.status, ranks=apart)
    assert "rankscope ranks" in how_to_end(spread, snapshot.overview)


def test_what_is_kept_is_said() -> None:
    """The newest checkpoint and how far back it is, or that there is none."""
    snapshot = scene("stalled", [MISSING])
    assert snapshot.status is not None
    told_of = what_comes_of_it(snapshot.status)
    assert told_of.endswith("and checkpoint step 12 000, 480 steps back")
    bare = msgspec.structs.replace(snapshot.status, last_checkpoint=None)
    assert what_comes_of_it(bare).endswith("there is no checkpoint")


def test_the_hub_tells_who_started_the_run_while_that_lives() -> None:
    """A process that is gone is not to be signalled: its number may be somebody else's by then."""
    world = World(ranks=2).step()
    assert world.overview().launcher_pid is None
    world.core.know.launcher = (4711, "node-0")
    world.core.launcher_lives = lambda: True
    assert (world.overview().launcher_pid, world.overview().launcher_host) == (4711, "node-0")
    assert not world.overview().launcher_gone
    world.core.launcher_lives = lambda: False
    assert world.overview().launcher_gone
    assert (world.overview().launcher_pid, world.overview().launcher_host) == (None, "")
