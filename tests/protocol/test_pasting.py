"""Commands that name the run they are about."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankscope.protocol import env, pasting, rundir

RUN = "20261129-163000-a3f9ab"
STAMP = "20261129-163000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept by a user who has set nothing."""
    monkeypatch.delenv(env.HOME, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return rundir.runs_home()


def made(home: Path, run: str) -> Path:
    return rundir.create(home, run, command=["x"], name="", now_s=0.0).path


def test_a_run_is_named_by_the_time_it_began_where_that_is_its_own(home: Path) -> None:
    """Short, and no later run can begin with it."""
    path = made(home, RUN)
    made(home, "20261129-163001-b3f9ab")
    assert pasting.words_for(path) == STAMP
    assert rundir.find_run(home, STAMP).path == path


def test_two_runs_of_one_second_are_named_in_full(home: Path) -> None:
    """The start of an id that two have is refused."""
    path = made(home, RUN)
    made(home, f"{STAMP}-b3f9ab")
    assert pasting.words_for(path) == RUN


@pytest.mark.parametrize(("run", "by_id"), [("exp-7", True), ("mine", False)])
def test_an_id_of_ones_own_is_never_cut(home: Path, run: str, by_id: bool) -> None:
    """``exp-7`` may be the start of a later ``exp-71``; a mere word would read as prose."""
    path = made(home, run)
    assert pasting.words_for(path) == (run if by_id else str(path))
    assert rundir.find_run(home, pasting.words_for(path)).path == path


def test_a_run_kept_elsewhere_is_named_by_its_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another terminal does not know what RANKSCOPE_HOME is here."""
    monkeypatch.setenv(env.HOME, str(tmp_path / "user" / "my runs"))
    path = made(rundir.runs_home(), RUN)
    words = pasting.words_for(path)
    assert words == f"~/'my runs/runs/{RUN}'"
    monkeypatch.delenv(env.HOME)
    (wanted,) = shlex.split(words)
    assert rundir.find_run(rundir.runs_home(), wanted).path == path


REFERENCES = [
    STAMP,
    RUN,
    "exp-7",
    f"/scratch/ada/runs/{RUN}",
    f"'/scratch/a da/runs/{RUN}'",
    f"~/'my runs/runs/{RUN}'",
    "--endpoint tcp://127.0.0.1:4000 --key '/tmp/a key.json'",
    "--endpoint tcp://[::1]:4000 --key ~/k.json",
    "'exp-7.'",
    f"""'/scratch/it'"'"'s/runs/{RUN}'""",
    f"$'/scratch/a\\012b\\047s\\134/runs/{RUN}'",
]


@pytest.mark.parametrize("words", REFERENCES)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("see where it is: rankscope stacks --rank 1", "rankscope stacks {} --rank 1"),
        ("look: rankscope stacks, and rankscope collectives", "rankscope stacks {}, and rankscope"),
        ("rankscope cancel gives the save up", "rankscope cancel {} gives the save up"),
        ("look: rankscope memory; a smaller batch", "rankscope memory {}; a smaller batch"),
        ("(rankscope grant operator)", "(rankscope grant operator {})"),
        ("the disk, then: rankscope checkpoint", "then: rankscope checkpoint {}"),
    ],
)
def test_commands_name_the_run_and_naming_again_changes_nothing(
    words: str, before: str, after: str
) -> None:
    """One that named another way to the same run names this one instead."""
    text = pasting.named(before, words)
    assert after.format(words) in text
    assert pasting.named(text, words) == text
    for other in REFERENCES:
        assert pasting.named(pasting.named(before, other), words) == text


@pytest.mark.parametrize("words", REFERENCES)
def test_what_is_to_be_copied_is_one_piece(words: str) -> None:
    """With its run and its options, and without the punctuation around it."""
    text = pasting.named(
        "see: rankscope stacks --rank 1; then (rankscope status), py-spy dump --pid 7 on node1",
        words,
    )
    assert "".join(part for part, _ in pasting.pieces(text)) == text
    assert [part for part, copied in pasting.pieces(text) if copied] == [
        f"rankscope stacks {words} --rank 1",
        f"rankscope status {words}",
        "py-spy dump --pid 7",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "start one with: rankscope run -- CMD, or rankscope demo",
        "what is live: rankscope ls",
        "not a rankscope key file",
        "rankscope stopped by hand",
        "use one rankscope version on both sides",
    ],
)
def test_what_is_about_no_run_stays(text: str) -> None:
    """Commands that take no run, and prose."""
    assert pasting.named(text, STAMP) == text
    assert pasting.pieces(text) == [(text, False)]


@pytest.mark.parametrize(
    "command",
    [
        "py-spy dump --pid 4700",
        "py-spy dump --native --pid 4700",
        "kill -CONT 4701",
        "ps -p 4700,4701",
        "dmesg | grep -i kill",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i 3",
        "nvidia-smi nvlink -e",
        r"tr '\0' '\n' < /proc/4700/environ",
        "/usr/bin/python3 -m rankscope.hub --run-dir '/scratch/a b/runs/x' &",
    ],
)
def test_commands_of_other_programs_are_whole_pieces_too(command: str) -> None:
    """Where an advice names one."""
    text = f"look at it: {command} (on node-a); if so, go on"
    assert (command, True) in pasting.pieces(text)


AWKWARD = "'\"\\ .,:;()~$`!*?[]#&|<>-=\n\t\x1b\x7f\x9b\u202eé火\udcff\udc80"
CHARACTERS = st.sampled_from(AWKWARD + "ab7") | st.characters(
    codec="utf-8", exclude_characters="\0/"
)
NAMES = st.text(CHARACTERS, min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(
    NAMES | st.sampled_from(["it's", "a dir", "r1.", "rankscope stop 7", "$'x'", "-x", "~"]),
    min_size=1,
    max_size=4,
).map(lambda names: Path("/", *names))
IDS = st.from_regex(rundir.RUN_ID, fullmatch=True)
HOME = {"HOME": "/home/ada"}
TEXT = "see: rankscope stacks{} --rank 1; then (rankscope status{}), rankscope cancel{} gives it up"


def read_by_a_shell(words: str) -> bytes:
    """What a program is given for ``words``."""
    command = f"printf '%s\\0' {words}"
    done = subprocess.run(["bash", "-c", command], env=HOME, stdout=subprocess.PIPE, check=True)
    return done.stdout


def names_the_run(words: str, before: str = STAMP) -> None:
    """Once, twice, and in place of another; each command is one piece to copy."""
    text = TEXT.format(*[f" {words}"] * 3)
    assert pasting.named(TEXT.format("", "", ""), words) == text
    assert pasting.named(text, words) == text
    assert pasting.named(pasting.named(text, before), words) == text
    assert [part for part, copied in pasting.pieces(text) if copied] == [
        f"rankscope stacks {words} --rank 1",
        f"rankscope status {words}",
        f"rankscope cancel {words}",
    ]


@pytest.mark.processes
@given(PATHS, st.booleans())
@example(Path("/scratch/it's/r1."), False)
@example(Path("/a\nb\x1b[31m/'\\101"), True)
def test_a_shell_reads_what_is_pasted_as_the_path(path: Path, at_home: bool) -> None:
    """Any path that can be; and nothing in it is a command to the terminal."""
    path = Path("/home/ada", *path.parts[1:]) if at_home else path
    words = pasting.quoted(path, HOME)
    assert words.isprintable()
    assert read_by_a_shell(words) == os.fsencode(path) + b"\0"


@given(PATHS, PATHS, st.booleans())
@example(Path("/scratch/it's/r1"), Path("/tmp/r1."), False)
def test_any_path_names_its_run_and_naming_again_changes_nothing(
    path: Path, other: Path, at_home: bool
) -> None:
    """Below the home folder and elsewhere, as a folder of runs and as a key file."""
    path = Path("/home/ada", *path.parts[1:]) if at_home else path
    names_the_run(pasting.quoted(path, HOME), pasting.quoted(other, HOME))
    by_key = pasting.words_elsewhere("tcp://10.0.0.1:4000", path, HOME)
    names_the_run(by_key, pasting.quoted(other, HOME))
    names_the_run(pasting.quoted(other, HOME), by_key)


@given(PATHS)
def test_whatever_another_program_has_quoted_is_known_for_a_run(path: Path) -> None:
    """Of a path without quotes a full stop at its end is the sentence's."""
    theirs = shlex.quote(str(path)).rstrip(".,:")
    text = pasting.named(TEXT.format("", "", ""), theirs)
    assert pasting.named(text, STAMP) == TEXT.format(*[f" {STAMP}"] * 3)


@given(IDS.filter(lambda run: any(map(str.isdigit, run))))
@example("exp-7.")
def test_any_id_names_its_run(run: str) -> None:
    """One that ends in a full stop, too."""
    words = pasting.words_for(rundir.runs_home({}) / run)
    assert shlex.split(words) == [run]
    names_the_run(words)
