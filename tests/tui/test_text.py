"""The views as plain text."""

import time
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol.exits import Exit
from rankscope.protocol.shapes import State
from rankscope.tui.doctor.check import Check
from rankscope.tui.doctor.words import findings_text
from rankscope.tui.runs import ListedRun
from rankscope.tui.text.check import check_line, judge
from rankscope.tui.text.incidents import incidents_text
from rankscope.tui.text.ls import ls_text
from rankscope.tui.text.output import coloured, toned, untoned, wants_colour
from rankscope.tui.text.ranks import ranks_text
from rankscope.tui.text.status import status_text
from rankscope.tui.text.table import Column, table
from rankscope.tui.words.verdict import NOBODY_ATTACHED
from support.samples import INCIDENTS, OVERVIEW, ROW, STATUS


def bare(lines: list[str]) -> list[str]:
    return [untoned(line) for line in lines]


def test_status_says_the_verdict_first_and_fits_80_columns() -> None:
    """Head, verdict with its evidence and what to do, numbers, ranks, foot."""
    lines = bare(status_text(STATUS, OVERVIEW))
    assert lines[2].startswith("✗ FAILED   rank 2 died: SIGKILL at step 13, in backward")
    assert any("dmesg" in line for line in lines)
    assert any("2 ✗ SIGKILL" in line for line in lines)
    assert all(len(line) <= 80 for line in lines), lines


def test_status_of_a_run_nobody_joined_yet_is_short() -> None:
    """Before the first hello there are no numbers to show, and none are made up."""
    status = msgspec.structs.replace(
        STATUS, state="starting", ranks=[], verdict=None, findings=[], step=0, last_checkpoint=None
    )
    overview = msgspec.structs.replace(
        OVERVIEW, state="starting", step=0, step_s=None, nodes=[], trainer="", verdict=None
    )
    text = "\n".join(bare(status_text(status, overview)))
    assert "waiting for the first step" in text
    assert "step/s" not in text


def grid(world: int, *hurt: int) -> list[str]:
    rows = [
        msgspec.structs.replace(
            ROW, rank=rank, process="stopped" if rank in hurt else "alive", link="up"
        )
        for rank in range(world)
    ]
    node = msgspec.structs.replace(OVERVIEW.nodes[0], ranks=list(range(world)))
    return bare(
        status_text(
            msgspec.structs.replace(
                STATUS, ranks=rows, world_size=world, state="running", verdict=None, findings=[]
            ),
            msgspec.structs.replace(OVERVIEW, nodes=[node]),
        )
    )


@pytest.mark.parametrize("world", [1, 64])
def test_many_ranks_flow_over_lines(world: int) -> None:
    """The grid of a large node breaks into lines of 80 columns; no rank is lost."""
    lines = grid(world)
    assert all(len(line) <= 80 for line in lines), [line for line in lines if len(line) > 80]
    assert sum(line.count("●") for line in lines) == world


def test_very_many_ranks_are_counted_and_the_unwell_named() -> None:
    """A thousand cells tell nothing; which rank is stopped does."""
    lines = grid(1000, 17)
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) < 20
    text = "\n".join(lines)
    assert "999× ●" in text
    assert "17 ◐ stopped" in text


def test_ranks_drop_columns_from_the_right() -> None:
    """Rank and state stay however narrow it gets."""
    wide = ranks_text(STATUS, 200)
    narrow = ranks_text(STATUS, 20)
    assert "pid" in wide[0]
    assert "pid" not in narrow[0]
    assert "SIGKILL" in narrow[1]
    assert all(len(untoned(line)) <= 80 for line in ranks_text(STATUS))


def test_an_ended_run_has_no_ages_of_ranks() -> None:
    """How long ago a rank was heard of says when one asks, not what happened."""
    assert "heard" not in ranks_text(STATUS, 200)[0]
    going = msgspec.structs.replace(STATUS, state="running")
    assert "heard" in ranks_text(going, 200)[0]
    nobody = msgspec.structs.replace(STATUS, state="finished", ranks=[])
    assert "no rank called attach(…)" in ranks_text(nobody)[0]


def test_status_of_an_ended_run_says_that_and_when_and_with_what() -> None:
    """The same whenever one asks; a run that goes on says since when it is up."""
    ended = msgspec.structs.replace(OVERVIEW, ended_s=1764432105.0)
    head = " ".join(bare(status_text(STATUS, ended))[:3])
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1764432105.0))
    assert f"ended {when}" in head
    assert "exit code 1" in head
    assert "ran 0:12" in head
    going = msgspec.structs.replace(STATUS, state="running", verdict=None, findings=[])
    head = " ".join(bare(status_text(going, OVERVIEW))[:3])
    assert "up 0:12" in head
    assert "ended" not in head


def test_a_node_on_which_there_is_only_a_sentinel_takes_no_line() -> None:
    """A sentinel is there before the ranks, and without any for a command that never attaches."""
    lonely = msgspec.structs.replace(OVERVIEW.nodes[0], host="lonely", ranks=[])
    overview = msgspec.structs.replace(OVERVIEW, nodes=[*OVERVIEW.nodes, lonely])
    assert "lonely" not in "\n".join(bare(status_text(STATUS, overview)))


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 3)])
def test_a_command_that_never_attached_is_told_so(state: State, code: int) -> None:
    """Not "finished at step 0": nothing was watched."""
    status = msgspec.structs.replace(
        STATUS, state=state, exit_code=code, ranks=[], verdict=None, findings=[], step=0
    )
    overview = msgspec.structs.replace(OVERVIEW, step_s=None, step=0)
    for lines in (status_text(status, overview), check_line(status)):
        text = " ".join("\n".join(bare(lines)).split())
        assert f"{NOBODY_ATTACHED}, exit code {code}" in text
        assert "step 0" not in text


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 118, in main',
    "    loss = objective(model(batch))",
    '  File "model.py", line 9, in forward',
    "    return self.table[tokens]",
    "           ~~~~~~~~~~^^^^^^^^",
    "IndexError: index 300 is out of range",
    "ranks 0 and 1 raised later: RuntimeError: connection closed",
]


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_status_shows_the_end_of_a_traceback(cut: int) -> None:
    """The last frame and the error are what one needs, however much came before."""
    raised = msgspec.structs.replace(STATUS.findings[0], kind="exception", evidence=TRACEBACK[cut:])
    status = msgspec.structs.replace(STATUS, verdict=raised, findings=[raised])
    lines = bare(status_text(status, OVERVIEW))
    at = lines.index('      File "model.py", line 9, in forward')
    assert lines[at + 1 : at + 3] == [
        "        return self.table[tokens]",
        "    IndexError: index 300 is out of range",
    ]
    assert not any("Traceback" in line or "~~~" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 132])
def test_text_keeps_to_the_width_of_the_terminal(width: int) -> None:
    """Also with every phase that there is."""
    overview = msgspec.structs.replace(
        OVERVIEW, phase_s={**OVERVIEW.phase_s, "other": 1.2}, ended_s=1764432105.0
    )
    lines = bare(status_text(STATUS, overview, width))
    assert all(len(line) <= width for line in lines), lines
    assert any(line.endswith("ms") for line in lines if "optimizer" in line or "other" in line)


def listed(name: str) -> ListedRun:
    return ListedRun("20261129-163000-k3f9ab", "ended", name, 0.0, 1.0, 143, 16, None, [], "/x")


def test_a_wide_name_is_shortened_and_its_column_stays() -> None:
    """One long command must not take the names from all other runs."""
    lines = bare(ls_text([listed("python train.py " + "x" * 60), listed("demo")], Path("/"), 50.0))
    assert all(len(line) <= 80 for line in lines), lines
    assert lines[0].endswith("verdict")
    assert "python train.py" in lines[1]
    assert "…" in lines[1]
    assert "demo" in lines[2]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_verdict_that_has_no_room_beside_its_run_stands_below_it(width: int) -> None:
    """Short ones stand beside it; no run is without one, and none is cut to a few letters."""
    long = "rank 1 never entered all_reduce #23: at hang.py:51 in take_twice; rank 0 waits"
    hung = msgspec.structs.replace(listed("gpt"), severity="critical", headline=long)
    lines = bare(ls_text([hung, listed("gpt")], Path("/"), 50.0, width))
    assert all(len(line) <= width for line in lines), lines
    text = "\n".join(lines)
    assert f"✗ {long}"[: width - 5] in text
    assert lines[-1].endswith("✗ failed")
    assert lines[0].index("verdict") == lines[-1].index("✗")


def test_a_table_lines_up_numbers_to_the_right_and_words_to_the_left() -> None:
    """Marks for colour take no room."""
    lines = bare(table([Column("n"), Column("word", right=False)], [["7", toned("a", "bad")],
                                                                    ["123", "bc"]]))  # fmt: skip
    assert lines == ["  n  word", "  7  a", "123  bc"]


@pytest.mark.parametrize(
    ("state", "severity", "code"),
    [
        ("running", None, Exit.FINE),
        ("running", "info", Exit.FINE),
        ("running", "warning", Exit.PROBLEM),
        ("running", "critical", Exit.PROBLEM),
        ("stalled", None, Exit.PROBLEM),
        ("failed", None, Exit.PROBLEM),
        ("finished", None, Exit.FINE),
        ("starting", None, Exit.FINE),
        ("paused", None, Exit.FINE),
    ],
)
def test_check_is_about_problems_only(state: State, severity: str | None, code: Exit) -> None:
    """A finding above info, or a run that failed or stands still."""
    finding = None if severity is None else msgspec.structs.replace(
        STATUS.findings[0], severity=severity
    )  # fmt: skip
    status = msgspec.structs.replace(
        STATUS, state=state, verdict=finding, findings=[finding] if finding else []
    )
    assert judge(status) == code
    assert len(check_line(status)) == 1


def test_incidents_tell_what_was_known_and_what_to_do() -> None:
    """When, what, the evidence, the next step."""
    text = "\n".join(bare(incidents_text(INCIDENTS)))
    for part in ("opened", "rank-dead", "pid 4713", "next: look for who sent it"):
        assert part in text


def test_colour_is_for_terminals_that_want_it() -> None:
    """Never in a pipe, never with NO_COLOR or on a dumb terminal."""
    assert wants_colour(True, {"TERM": "xterm"})
    assert not wants_colour(False, {"TERM": "xterm"})
    assert not wants_colour(True, {"TERM": "xterm", "NO_COLOR": "1"})
    assert not wants_colour(True, {"TERM": "dumb"})
    assert coloured(toned("x", "bad")) == "\x1b[1;31mx\x1b[0m"


def test_the_doctor_says_what_to_do_about_what_is_missing() -> None:
    """And nothing about what works."""
    lines = bare(
        findings_text(
            [
                Check("loopback", True, "fine", do="never shown"),
                Check("GPU", False, "none", essential=False, do="install the driver"),
                Check("run directories", False, "/x cannot be written", do="set RANKSCOPE_HOME"),
            ]
        )
    )
    text = "\n".join(lines)
    assert "never shown" not in text
    assert "→ install the driver" in text
    assert lines[-1] == "1 to mend before rankscope can work here"
