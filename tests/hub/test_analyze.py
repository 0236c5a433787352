"""Dump files of torch's flight recorder: the verdict, and what is refused."""

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankscope.hub.analyze.files import read_folder
from rankscope.hub.analyze.job import job_of
from rankscope.hub.analyze.restricted import Refused, loads
from rankscope.hub.analyze.verdict import analyse
from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.shapes import Analysis, Finding
from support.dumps import BEGAN_NS, Recorder, job

TP = ("7", "tp")


def analysed(folder: Path, made: list[Recorder], **how: Any) -> Analysis:
    for one in made:
        one.write(folder, **how)
    dumps, notes = read_folder(folder)
    return analyse(job_of(dumps), notes)


def only(found: Analysis) -> Finding:
    (finding,) = found.findings
    return finding


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_rank_that_never_entered_is_named(tmp_path: Path, as_json: bool, backend: str) -> None:
    """With what the others wait in, where they called it, and what it did last."""
    made = job(4)
    for one in made:
        if one.rank != 2:
            one.op("all_gather", (8,), done=False, line=20, backend=backend)
    finding = only(analysed(tmp_path, made, as_json=as_json))
    assert (finding.kind, finding.ranks, finding.victims) == ("missing-collective", [2], [0, 1, 3])
    assert finding.where == {"collective": f"{backend}:all_gather"}
    assert "called at train.py:20 in main" in finding.evidence[0]
    assert finding.evidence[-1] == (
        "rank 2: its last collective was broadcast [3] -> [3] float32, #8, complete, "
        "called at train.py:12 in main"
    )


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "broadcast"},
        {"sizes": (1024,)},
        {"dtype": "Long"},
    ],
)
def test_a_rank_that_does_something_else_is_named_with_its_line(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    """Operation, size or type: the minority is wrong."""
    made = job(4)
    for one in made:
        mine = odd if one.rank == 3 else {}
        one.op(**{"done": False, "line": 33 if one.rank == 3 else 20, **mine})
    finding = only(analysed(tmp_path, made))
    assert (finding.kind, finding.ranks) == ("collective-mismatch", [3])
    assert finding.where["source"] == "train.py:33 in main"
    assert finding.next.startswith("read train.py:33 in main")


def test_two_groups_in_opposite_order_are_a_circle(tmp_path: Path) -> None:
    """Nobody is somewhere else: they wait for each other."""
    made = job(2)
    other = ("8", "dp")
    for one in made:
        one.op(group=TP).op(group=other)
        one.op(group=TP if one.rank == 0 else other, done=False)
    assert only(analysed(tmp_path, made)).kind == "group-deadlock"


def test_all_entered_and_none_leaves_is_the_fabric(tmp_path: Path) -> None:
    """The same collective on every rank, pending on all."""
    made = job(4)
    for one in made:
        one.op(done=False)
    finding = only(analysed(tmp_path, made))
    assert (finding.kind, finding.ranks) == ("collective-stuck", [])


def test_dumps_of_ranks_that_wait_for_nobody_are_no_finding(tmp_path: Path) -> None:
    """All that they did is complete."""
    found = analysed(tmp_path, job(3))
    assert (found.findings, found.missing, found.world_size) == ([], [], 3)
    assert [(row.description, row.enqueued_most) for row in found.groups] == [("default_pg", 8)]


def test_ranks_without_a_dump_are_named_and_suspected(tmp_path: Path) -> None:
    """Where the members of the group are known, or a number between is missing."""
    made = job(4)
    for one in made:
        one.group("0", "default_pg", list(range(6)))
        one.op(done=False)
    made.pop(1)
    found = analysed(tmp_path, made)
    assert (found.missing, found.world_size) == ([1, 4, 5], 6)
    finding = only(found)
    assert (finding.kind, finding.ranks) == ("missing-collective", [1, 4, 5])
    assert "left no dump" in finding.headline


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"\x80\x02}q\x00(X\x07\x00", "damaged or cut off"),
        (b'{"version": "2.1", "entries": [', "cut off"),
        (b'{"hello": "world"}', "no dump of torch's flight recorder"),
        (b'{"version": "2.1", "entries": [{"a": 1}]}', "no dump of torch's flight recorder"),
        (pickle.dumps([1, 2, 3]), "no dump of torch's flight recorder"),
        (b"some text", "damaged or cut off"),
    ],
)
def test_a_bad_file_is_passed_over_and_told(tmp_path: Path, content: bytes, why: str) -> None:
    """The others are read; the rank counts as one without a dump."""
    made = job(3)
    for one in made:
        one.write(tmp_path)
    (tmp_path / "nccl_trace_rank_1").write_bytes(content)
    dumps, notes = read_folder(tmp_path)
    assert [dump.rank for dump in dumps] == [0, 2]
    assert job_of(dumps).missing == [1]
    (note,) = notes
    assert note.startswith("nccl_trace_rank_1 was passed over: ")
    assert why in note


class Hostile:
    """What a pickle may do to whoever reads it as such."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_hostile_pickle_is_refused_and_nothing_is_executed(tmp_path: Path) -> None:
    """Whatever it hides in."""
    proof = tmp_path / "proof"
    raw = {"version": "2.1", "entries": [Hostile(proof)], "pg_status": {}}
    (tmp_path / "trace_rank_0").write_bytes(pickle.dumps(raw))
    with pytest.raises(UserError, match=r"can be read: trace_rank_0 .* asks for posix.mkdir"):
        read_folder(tmp_path)
    assert not proof.exists()


def test_a_pickle_cannot_reach_outside(tmp_path: Path) -> None:
    """Persistent ids, extension codes and builtins are refused, too."""
    for data in (
        b"Pmine\n.",
        b"\x82\x01.",
        b"cbuiltins\neval\n(V1\ntR.",
        b"\x80\x04\x8c\x02os\x94.",
    ):
        if data.endswith(b"\x94."):
            assert loads(data) == "os"
            continue
        with pytest.raises(Refused):
            loads(data)


def test_a_small_pickle_cannot_take_all_memory(tmp_path: Path) -> None:
    """A memo with an index of two thousand millions would be a table of 32 GB."""
    bomb = b"\x80\x02Nr" + struct.pack("<I", 2_000_000_000) + b"."
    (tmp_path / "trace_rank_0").write_bytes(bomb)
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "rankscope.hub.analyze", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2, ran
    assert "more memory than its size explains" in ran.stderr


def test_dumps_of_two_jobs_are_refused(tmp_path: Path) -> None:
    """Two files of one rank; members that differ; versions; half a day between them."""
    for number, (one, other, how) in enumerate(
        [
            (job(2), job(2, began_ns=BEGAN_NS + 10**9), {"prefix": "b_rank_"}),
            (_with_members([0, 1, 2]), _with_members([0, 1, 2, 3])[2:], {}),
            (job(2), job(3, version="1.4")[2:], {}),
            (job(2), job(3, began_ns=BEGAN_NS + 86400 * 10**9)[2:], {}),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for recorder in one:
            recorder.write(folder)
        with pytest.raises(UserError, match="of more than one job"):
            analysed(folder, other, **how)


def _with_members(ranks: list[int]) -> list[Recorder]:
    made = job(len(ranks))
    for one in made:
        one.group("0", "default_pg", ranks)
    return made


def test_both_forms_of_one_dump_are_one(tmp_path: Path) -> None:
    """The pickle is read: it has stacks."""
    made = job(2)
    for one in made:
        one.write(tmp_path, "json_", as_json=True)
    found = analysed(tmp_path, made)
    assert found.ranks == [0, 1]


@pytest.mark.parametrize("name", ["nothing", "file", "empty"])
def test_a_folder_without_dumps_is_refused_in_words(tmp_path: Path, name: str) -> None:
    """No such folder, a file, no dump in it."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.txt").touch()
    with pytest.raises(UserError):
        read_folder(tmp_path / name)


def test_a_thousand_ranks_are_read(tmp_path: Path) -> None:
    """One of them never entered."""
    made = job(1000, steps=1)
    for one in made:
        if one.rank != 777:
            one.op("all_gather", (8,), done=False)
    finding = only(analysed(tmp_path, made))
    assert finding.ranks == [777]
    assert len(finding.victims) == 999


def _with(**fields: Any) -> bytes:
    """A dump of rank 0 whose last entry has these fields."""
    dump = job(1)[0].raw()
    dump["entries"][-1].update(fields)
    return pickle.dumps(dump)


def _status(value: Any) -> bytes:
    return pickle.dumps(job(1)[0].raw() | {"pg_status": {"0": {"last_enqueued_collective": value}}})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_status(float("inf")), id="infinite count"),
        pytest.param(_status("9" * 5000), id="count of many digits"),
        pytest.param(_with(collective_seq_id=1 << 64), id="number beyond 64 bits"),
        pytest.param(_with(time_created_ns=1 << 90), id="time beyond 64 bits"),
        pytest.param(_with(input_sizes=[[1 << 80]]), id="size beyond 64 bits"),
        pytest.param(_with(profiling_name="nccl:\ud800"), id="half a character"),
        pytest.param(_with(process_group=["\udfff", "x"]), id="half a character in a group"),
        pytest.param(b'{"version": "2", "entries": ' + b"[" * 200_000, id="too deep"),
    ],
)
def test_a_dump_that_no_recorder_writes_spoils_only_itself(tmp_path: Path, content: bytes) -> None:
    """It is passed over and told, and the other ranks' dumps are read."""
    made = job(3)
    (tmp_path / "nccl_trace_rank_0").write_bytes(content)
    found = analysed(tmp_path, made[1:])
    assert found.ranks == [1, 2]
    (note,) = found.notes
    assert note.startswith("nccl_trace_rank_0 was passed over: it is no ")
    jsontext.dumps(found)


def test_a_rank_beyond_any_job_is_passed_over(tmp_path: Path) -> None:
    """A file's name may end in any number."""
    job(1)[0].write(tmp_path, "nccl_trace_rank_99999")
    found = analysed(tmp_path, job(2))
    assert found.ranks == [0, 1]
    assert "no job has a rank 999990" in found.notes[0]


def test_names_without_end_are_cut(tmp_path: Path) -> None:
    """A name of a megabyte stays off the terminal."""
    made = job(2)
    made[1].op("x" * (1 << 20), group=("g" * (1 << 20), "d" * (1 << 20)), done=False)
    made[1].entries[-1]["frames"][1]["name"] = "f" * (1 << 20)
    assert len(jsontext.dumps(analysed(tmp_path, made))) < 20_000


def test_many_groups_are_gone_through_once(tmp_path: Path) -> None:
    """Each group's collectives are found by its name, not among those of all groups."""
    made = job(2)
    for number in range(5_000):
        made[0].op(group=(f"g{number}", "many"))
    assert len(analysed(tmp_path, made).groups) == 5_001


@pytest.mark.processes
def test_the_reader_ends_with_whoever_asked(tmp_path: Path) -> None:
    """Killed as it may be: the pipe that is the reader's standard input closes then."""
    made = job(2)
    for number in range(20_000):  # seconds of work, of which it needs milliseconds
        made[0].op(group=(f"g{number % 5000}", "many"))
    for one in made:
        one.write(tmp_path)
    closed, writes = os.pipe()
    os.close(writes)  # however soon the reader is ready, it has been asked for nothing any more
    reader = subprocess.Popen(
        [sys.executable, "-P", "-m", "rankscope.hub.analyze", str(tmp_path)],
        stdin=closed,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(closed)
    assert reader.wait(60.0) == Exit.INTERRUPTED
