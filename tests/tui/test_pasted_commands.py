"""Commands that a screen or a text suggests: they name the run, and can be copied whole."""

import shlex
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol import env
from rankscope.protocol.pasting import pieces, quoted
from rankscope.protocol.shapes import CheckpointsView, Command, Incident, Incidents, Status
from rankscope.tui.dashboard.keeping import verdict_text, whole_screen
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.evidence import evidence_lines
from rankscope.tui.dashboard.render.incidents import detail_lines
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.render.verdict import verdict_lines
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.evidence import EvidenceScreen
from rankscope.tui.feed.naming import name_run
from rankscope.tui.text.incidents import incidents_text
from rankscope.tui.text.output import untoned
from rankscope.tui.text.status import status_text
from rankscope.tui.words.advice import advice_lines, wrapped_command
from rankscope.tui.words.incidents import entries
from support.samples import OVERVIEW, STATUS
from support.scenes import SCENES

STAMP = "20261129-163000"
FAR = "/scratch/projects/llm/ada/experiments/rankscope/runs/20261129-163000-a3f9ab"
WORDS = [
    STAMP,
    FAR,
    """'/scratch/it'"'"'s ada/runs/r1.'""",
    """'/scratch/it'"'"'s  ada and  a folder with a long name/of this year/runs/r1'""",
    r"$'/scratch/a\012b/runs/r1'",
    "--endpoint tcp://127.0.0.1:40995 --key ~/keys/20261129-163000-viewer.json",
]
WIDTHS = [40, 80, 120, 200]


def stuck(words: str) -> Status:
    """As it comes from a hub through a client that names the run."""
    finding = msgspec.structs.replace(
        STATUS.findings[0],
        kind="missing-collective",
        next="see where: rankscope stacks --rank 1",
        evidence=["what it trains cannot be kept: rankscope stop; go on from checkpoint 8"],
    )
    status = msgspec.structs.replace(
        STATUS, state="stalled", stalled_s=9.0, verdict=finding, findings=[finding]
    )
    name_run(status, words)
    return status


def picture(words: str) -> Picture:
    snapshot = SCENES["dead"]()
    return Picture(replace(snapshot, status=stuck(words), run_words=words))


@pytest.mark.parametrize("words", WORDS)
def test_all_that_a_hub_says_names_the_run(words: str) -> None:
    """Findings, the log, answers to commands; what is no advice stays as it is."""
    status = stuck(words)
    assert status.verdict is not None
    assert status.verdict.next == f"see where: rankscope stacks {words} --rank 1"
    assert status.findings[0].next == status.verdict.next
    assert f"rankscope stop {words};" in status.verdict.evidence[0]
    log = Incidents(
        incidents=[
            Incident(id="x", event="opened", at_s=0.0, attempt=0, finding=stuck("").findings[0])
        ]
    )
    name_run(log, words)
    assert log.incidents[0].finding.next == status.verdict.next
    assert log.incidents[0].finding.evidence == status.verdict.evidence
    paused = Command(
        request=0, command="stop", author="rankscope stop", age_s=0.0, state="refused",
        text="the run is paused: rankscope resume",
    )  # fmt: skip
    view = CheckpointsView(
        run="r", pending="", request=0, ranks=[], left_out=0, slowest=None, outcomes=[], last=None,
        commands=[paused], possible={"stop": "it is paused: rankscope resume"},
    )  # fmt: skip
    name_run(view, words)
    assert view.possible == {"stop": f"it is paused: rankscope resume {words}"}
    assert view.commands[0].text.endswith(f"rankscope resume {words}")
    assert view.commands[0].author == "rankscope stop"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", WORDS)
def test_a_command_is_never_broken(words: str, width: int) -> None:
    """Not at a blank, not at a hyphen; the prose around it fits the line."""
    command = f"rankscope stacks {words} --rank 1"
    text = f"see where it is and what it does there: {command}, and what it says of it; then go on"
    lines = advice_lines(text, width)
    assert any(command in line for line in lines)
    assert all(len(line) <= width for line in lines if command not in line)
    assert "".join(lines).replace(" ", "").replace(",", "") == text.replace(" ", "").replace(
        ",", ""
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", WORDS)
def test_text_twins_print_commands_whole(words: str, width: int) -> None:
    """On a line of their own where they do not fit behind the sentence."""
    command = f"rankscope stacks {words} --rank 1"
    lines = [untoned(line) for line in status_text(stuck(words), OVERVIEW, width)]
    assert sum(command in line for line in lines) == 1
    log = Incidents(
        incidents=[
            Incident(id="x", event="opened", at_s=0.0, attempt=0, finding=stuck(words).findings[0])
        ]
    )
    assert any(command in line for line in incidents_text(log))
    unexplained = msgspec.structs.replace(stuck(words), verdict=None, findings=[])
    nothing = Incidents(incidents=[])
    assert f"rankscope status {words}" in "\n".join(incidents_text(nothing, unexplained, words))


def test_a_screen_shows_a_command_whole_where_it_fits() -> None:
    """Both on the first screen and with the evidence, at 80 columns."""
    command = f"rankscope stacks {STAMP} --rank 1"
    for lines in (
        verdict_lines(picture(STAMP), 80, 0.0),
        evidence_lines(picture(STAMP), 80),
    ):
        assert sum(command in text_of(each) for each in lines) == 1


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("words", [*WORDS, "~/'my own runs/of this year/20261129-163000-a3f9ab'"])
def test_a_command_with_the_evidence_is_wrapped_between_arguments_as_a_shell_takes_it(
    words: str, width: int
) -> None:
    """Each line but the last ends in a backslash; nothing of it is left out."""
    command = f"rankscope stacks {words} --rank 1"
    shown = stuck(words)
    log = Incidents(
        incidents=[Incident(id="x", event="opened", at_s=0.0, attempt=0, finding=shown.findings[0])]
    )
    (entry,) = entries(log)
    for lines in (
        evidence_lines(picture(words), width),
        detail_lines(entry, picture(words), 1.0, width, 40),
    ):
        texts = [text_of(each) for each in lines]
        assert all(len(each) <= width for each in texts)
        begin = next(at for at, each in enumerate(texts) if "rankscope stacks" in each)
        end = next(at for at in range(begin, len(texts)) if not texts[at].rstrip().endswith(" \\"))
        pasted = "\n".join(each.rstrip() for each in texts[begin : end + 1])
        pasted = pasted[pasted.index("rankscope stacks") :].replace("\\\n", "")
        assert shlex.split(pasted) == shlex.split(command)
        assert (begin == end) == (len(command) <= width - 15)


@given(st.text("""ab1 '"$\\.~é\n""", min_size=1, max_size=30), st.integers(10, 60))
def test_no_path_is_changed_by_being_shown(name: str, width: int) -> None:
    """Whatever quotes and blanks are in it, and wherever the lines break."""
    command = f"rankscope stacks {quoted(Path('/far away') / name / 'r1', {})} --rank 1"
    assert [line for line in advice_lines(f"see  where: {command}", width) if command in line]
    lines = wrapped_command(command, width)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


@pytest.mark.parametrize("width", [40, 80])
def test_what_a_screen_has_to_cut_is_copied_and_written_whole(width: int) -> None:
    """The screen shows an ellipsis; what is taken away from it has all of the command."""
    command = f"rankscope stacks {FAR} --rank 1"
    shown = [text_of(each) for each in verdict_lines(picture(FAR), width, 0.0)]
    assert all(len(each) <= width for each in shown)
    assert any("rankscope stacks" in each and each.rstrip().endswith("…") for each in shown)
    assert command in verdict_text(picture(FAR), 0.0)
    assert command in whole_screen(EvidenceScreen(), picture(FAR), Room(width, 24, 0.0))


def test_pieces_of_a_paused_hub_s_words_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with blanks is quoted and stays one word."""
    monkeypatch.setenv(env.HOME, str(Path("/tmp/a b")))
    text = "if so: '/opt/a b/python' -m rankscope.hub --run-dir '/tmp/a b/runs/x' &"
    assert pieces(text)[-1] == (text.removeprefix("if so: "), True)
