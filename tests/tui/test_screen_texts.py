"""The screens of steps, checkpoints and runs as text: the same words, for a pipe."""

import json
import time
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import jsontext, rundir, shapes
from rankscope.tui.commands import ls, runs
from rankscope.tui.runs import last_words, listed
from rankscope.tui.text.checkpoints import checkpoints_text
from rankscope.tui.text.ls import ls_text
from rankscope.tui.text.output import untoned
from rankscope.tui.text.steps import steps_text
from rankscope.tui.words.checkpoints import past
from rankscope.tui.words.runs import verdict
from support.scenes import DEAD, HUB_S, pages, views

GOLDEN = Path(__file__).parent / "golden"
TEXTS = {
    "steps-late": lambda: steps_text(views.steps_view(late=True), 5),
    "steps-odd": lambda: steps_text(views.steps_view(odd=True)),
    "steps-none": lambda: steps_text(views.empty_view()),
    "checkpoints-saving": lambda: checkpoints_text(views.checkpoints_view(saving=True)),
    "checkpoints-failed": lambda: checkpoints_text(views.checkpoints_view(failed=True)),
    "checkpoints-none": lambda: checkpoints_text(views.no_checkpoints()),
    "runs": lambda: ls_text(pages.RUNS, Path("/runs"), HUB_S, 100),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_as_it_was_when_it_was_last_read(name: str, write_golden: bool) -> None:
    """In the words of the screen of the same name."""
    text = "".join(f"{untoned(line)}\n" for line in TEXTS[name]())
    path = GOLDEN / f"{name}.txt"
    if write_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_runs_is_the_listing_under_the_name_of_its_screen() -> None:
    """One listing, two names."""
    assert runs.run is ls.run


def incident(
    id_: str, event: str, finding: shapes.Finding, command: shapes.Command | None = None
) -> bytes:
    entry = views.incident(id_, event, 1.0, finding)
    return msgspec.json.encode(msgspec.structs.replace(entry, command=command)) + b"\n"


def test_a_runs_verdict_is_the_gravest_finding_that_its_log_leaves_open(tmp_path: Path) -> None:
    """Closed ones, commands, and lines that were cut off say nothing."""
    log = tmp_path / "incidents.jsonl"
    asked = msgspec.structs.replace(DEAD, kind="command")
    mild = msgspec.structs.replace(DEAD, severity="warning", headline="slow")
    log.write_bytes(
        incident("a", "opened", DEAD)
        + incident("a", "closed", DEAD)
        + incident("b", "opened", mild)
        + incident("c", "opened", asked)
        + b'{"id": "d", "ev'
    )
    found, _, _ = last_words(log)
    assert found is not None
    assert found.headline == "slow"
    with log.open("ab") as file:
        file.write(b"\n" + incident("e", "opened", DEAD))
    found, _, _ = last_words(log)
    assert found is not None
    assert found.severity == "critical"
    assert last_words(tmp_path / "none") == (None, "", "")


def test_what_came_of_a_run_that_is_over_is_told_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An age as of its end would still read 0.0 s the next morning."""
    monkeypatch.setattr("time.localtime", time.gmtime)
    text = "\n".join(checkpoints_text(views.over_view(), 200, HUB_S))
    assert "ago" not in text
    assert time.strftime("at %m-%d %H:%M:%S", time.gmtime(HUB_S - 3999.0)) in text
    assert " ago" in "\n".join(checkpoints_text(views.checkpoints_view(), 200, HUB_S))


@pytest.mark.parametrize("name", ["stop", "checkpoint-and-stop"])
def test_a_run_that_an_operator_ended_is_listed_as_stopped_by_them(
    tmp_path: Path, name: str
) -> None:
    """Whoever comes on shift must not take it for complete; a refused stop ended nothing."""
    directory = rundir.create(tmp_path, "run-1", command=["true"], name="", now_s=1.0)
    directory.write_info(msgspec.structs.replace(directory.read_info(), ended_s=2.0, exit_code=0))
    told = shapes.Command(
        request=0, command=name, author="ada@laptop", age_s=1.0, state="refused", text="no"
    )
    asked = msgspec.structs.replace(DEAD, kind="command", severity="info")
    directory.incidents.write_bytes(incident("a", "closed", asked, told))
    assert verdict(listed(tmp_path)[0]).word == "finished"
    done = msgspec.structs.replace(told, state="done", request=7)
    directory.incidents.write_bytes(incident("a", "closed", asked, done))
    assert verdict(listed(tmp_path)[0]).word == "stopped by ada@laptop"


def test_a_run_that_is_paused_is_listed_as_that(tmp_path: Path) -> None:
    """By whom, until the pause is over; what is graver comes first, and a run that is over, or that
    has no hub any more, is not paused."""
    directory = rundir.create(tmp_path, "run-1", command=["true"], name="", now_s=1.0)
    told = shapes.Command(
        request=7, command="pause", author="ada@laptop", age_s=0.0, state="waiting", text=""
    )
    asked = msgspec.structs.replace(DEAD, kind="command", severity="info")
    opened = incident("a", "opened", asked, told)
    directory.incidents.write_bytes(opened)
    assert last_words(directory.incidents)[2] == "ada@laptop"
    live = listed(tmp_path)[0]
    assert live.paused_by == ""
    live = msgspec.structs.replace(live, state="live", world_size=2, paused_by="ada@laptop")
    assert verdict(live).word == "pause by ada@laptop"
    dead = msgspec.structs.replace(live, severity="critical", headline="rank 1 is dead")
    assert verdict(dead).word == "rank 1 is dead"
    done = msgspec.structs.replace(told, state="done")
    directory.incidents.write_bytes(opened + incident("a", "closed", asked, done))
    assert last_words(directory.incidents)[2] == ""


def test_commands_are_told_with_when_they_ended_and_pauses_with_when_they_began() -> None:
    """The newest first."""
    resume = shapes.Command(
        request=2, command="resume", author="ada", age_s=11.0, state="done", text="", ended_age_s=10
    )
    save = msgspec.structs.replace(resume, command="checkpoint", age_s=90.0, ended_age_s=60.0)
    pause = msgspec.structs.replace(resume, command="pause", age_s=1800.0)
    view = msgspec.structs.replace(views.checkpoints_view(), commands=[pause, resume, save])
    told = [(one.command, ago_s) for one, ago_s in past(view)]
    assert told == [("resume", 10), ("checkpoint", 60.0), ("pause", 1800.0)]


def test_the_listing_tells_how_each_run_is(tmp_path: Path) -> None:
    """From its log and its exit code, without asking a hub."""
    directory = rundir.create(tmp_path, "run-1", command=["true"], name="", now_s=1.0)
    info = msgspec.structs.replace(directory.read_info(), ended_s=2.0, exit_code=0)
    directory.write_info(info)
    (one,) = listed(tmp_path)
    assert verdict(one).word == "finished"
    directory.incidents.write_bytes(incident("a", "opened", DEAD))
    (one,) = listed(tmp_path)
    assert (one.severity, verdict(one).word) == ("critical", DEAD.headline)
    document = json.loads(jsontext.dumps({"runs": [one]}))
    assert document["runs"][0]["headline"] == DEAD.headline
