"""The drill's pure parts: what is exact, how long is waited, which runs there are, the table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankscope.protocol import faults
from rankscope.protocol.exits import UserError
from rankscope.protocol.faulttable import FAULTS
from rankscope.protocol.shapes import DrillRow, Finding, Injected, RankRow, Status
from rankscope.tui.drill import judge, table, truth
from rankscope.tui.drill.book import Book
from rankscope.tui.drill.plan import STEP, Setting, plan, ranks_at
from rankscope.tui.drill.truth import Truth
from rankscope.tui.drill.vigil import LASTING_STEPS, SETTLE_S, START_S, Vigil
from rankscope.tui.text.output import untoned

SOURCE = "hang.py:39-40 in loop_for_ever"


def fault(name: str) -> faults.Fault:
    return faults.find(name, FAULTS)


def finding(kind: str = "rank-dead", **changes: Any) -> Finding:
    base = Finding(
        kind=kind,
        severity="critical",
        ranks=[1],
        victims=[0],
        step=12,
        since_s=1.0,
        headline="",
        evidence=[],
        next="",
        where={"phase": "forward"},
    )
    return msgspec.structs.replace(base, **changes)


def injected(kind: str = "rank-dead", **changes: Any) -> Injected:
    base = Injected(ranks=[1], step=12, kind=kind, where={"phase": "forward"})
    return msgspec.structs.replace(base, **changes)


def status(*findings: Finding, step: int = 11) -> Status:
    return Status(
        run="r",
        attempt=0,
        world_size=2,
        state="running",
        step=step,
        verdict=None,
        findings=list(findings),
        ranks=[],
        last_checkpoint=None,
        dropped=0,
        overhead_s_per_step=None,
    )


def test_a_script_that_is_not_heard_is_given_up() -> None:
    """Five seconds after its fault; where the fault is there from the start, much later."""
    told = Truth(injected(), 100.0)
    vigil = Vigil(fault("sigkill"), 90.0, 20.0, stranger=True)
    assert not vigil.look(104.0, told, status())
    assert vigil.look(106.0, told, status())
    early = Vigil(fault("environment"), 90.0, 20.0, stranger=True)
    assert not early.look(130.0, told, status(step=0))
    assert early.look(100.0 + START_S + 1, told, status(step=0))


@pytest.mark.parametrize(
    ("changes", "attached"),
    [
        ({}, False),
        ({"heard_s": 1.0}, True),
        ({"process": "alive"}, True),
        ({"process": "ended"}, True),
    ],
)
def test_a_script_whose_ranks_died_before_their_first_word_has_attached(
    changes: dict[str, Any], attached: bool
) -> None:
    """It registered with the node's sentinel, which only a script does that attaches."""
    vigil = Vigil(fault("sigkill"), 90.0, 20.0, stranger=True)
    row = RankRow(
        rank=1,
        host="",
        pid=None,
        step=0,
        phase="starting",
        phase_s=None,
        link="down",
        step_s=None,
        loss=None,
        grad_norm=None,
        memory_peak_bytes=None,
        **changes,
    )
    vigil.look(101.0, Truth(injected(), 100.0), msgspec.structs.replace(status(), ranks=[row]))
    assert vigil.heard is attached


def test_a_right_verdict_is_exact() -> None:
    """Kind, ranks, step and phase; itself among the criticals does not count against it."""
    right = finding()
    assert judge.wrong(fault("sigkill"), injected(), right, [right]) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "exception"}, "called exception, not rank-dead"),
        ({"ranks": [0]}, "ranks [0], not [1]"),
        ({"ranks": [0, 1]}, "ranks [0, 1], not [1]"),
        ({"step": 11}, "step 11, not 12"),
        ({"step": None}, "step None, not 12"),
        ({"where": {"phase": "backward"}}, "phase backward, not forward"),
        ({"where": {}}, "phase not said, not forward"),
    ],
)
def test_a_verdict_that_is_wrong_in_one_thing_is_not_exact(
    changes: dict[str, Any], says: str
) -> None:
    """And the note says in which."""
    wrong = judge.wrong(fault("sigkill"), injected(), finding(**changes), [])
    assert wrong == [says]


def test_nothing_found_is_not_exact() -> None:
    """Silence is a wrong verdict."""
    assert judge.wrong(fault("sigkill"), injected(), None, []) == ["nothing was found"]


def test_the_step_of_a_lasting_fault_does_not_matter() -> None:
    """A straggler has no one step."""
    late = finding("straggler", step=40, severity="warning")
    assert judge.wrong(fault("slow-forward"), injected("straggler"), late, []) == []


def test_another_critical_finding_spoils_it_unless_the_table_allows_it() -> None:
    """On victims only, where it says so."""
    spec = fault("wrong-size")
    where = {"collective": "all_reduce", "source": "x.py:1 in f"}
    truth_ = injected("collective-mismatch", where=where)
    right = finding("collective-mismatch", where=where)
    victim, culprit = finding("exception", ranks=[0]), finding("exception", ranks=[1])
    assert judge.wrong(spec, truth_, right, [right, victim]) == []
    assert judge.wrong(spec, truth_, right, [right, culprit]) == ["also called exception"]
    assert judge.wrong(spec, truth_, right, [finding("rank-stopped")]) == [
        "also called rank-stopped"
    ]


@pytest.mark.parametrize(
    ("key", "found", "true", "same"),
    [
        ("source", "hang.py:39 in loop_for_ever", SOURCE, True),
        ("source", "hang.py:40 in loop_for_ever", SOURCE, True),
        ("source", "hang.py:41 in loop_for_ever", SOURCE, False),
        ("source", "hang.py:39 in other", SOURCE, False),
        ("source", "other.py:39 in loop_for_ever", SOURCE, False),
        ("source", "nonsense", SOURCE, False),
        ("collective", "gloo:all_gather", "all_gather", True),
        ("collective", "_allgather_base", "all_gather", True),
        ("collective", "nccl:_reduce_scatter_base", "reduce_scatter", True),
        ("collective", "gloo:all_reduce", "reduce_scatter", True),
        ("collective", "reduce_scatter", "all_reduce", False),
        ("collective", "broadcast", "all_reduce", False),
        ("parameter", "module._orig_mod.head.weight", "head.weight", True),
        ("module", "blocks.1.mlp", "blocks.1.mlp.up", False),
        ("microbatch", 2, 2, True),
        ("microbatch", 1, 2, False),
        ("microbatch", None, 2, False),
    ],
)
def test_what_means_the_same_is_the_same(key: str, found: Any, true: Any, same: bool) -> None:
    """Wrappers around a name, a backend's word for an operation, a line of a loop."""
    assert judge.same(key, found, true) is same


def test_the_finding_of_the_right_kind_is_judged_else_the_gravest() -> None:
    """A notice is nobody's verdict."""
    warning, grave = finding("straggler", severity="warning"), finding("link-lost")
    notice = finding("exception", severity="info")
    right = finding("rank-dead")
    assert judge.choose(fault("sigkill"), [warning, grave, right]) is right
    assert judge.choose(fault("sigkill"), [notice, warning, grave]) is grave
    assert judge.choose(fault("sigkill"), [notice, warning]) is warning
    assert judge.choose(fault("sigkill"), [notice]) is None


HAPPENED = Truth(injected(), at_s=100.0)


def test_a_right_verdict_is_believed_when_it_has_stood_for_a_moment() -> None:
    """Its latency is that of its first sight."""
    vigil = Vigil(fault("sigkill"), began_s=90.0, wait_s=20.0)
    assert not vigil.look(99.0, None, status())
    assert not vigil.look(100.1, HAPPENED, status())
    assert not vigil.look(100.5, HAPPENED, status(finding()))
    assert not vigil.look(100.6 + SETTLE_S - 0.2, HAPPENED, status(finding()))
    assert vigil.look(100.5 + SETTLE_S, HAPPENED, status(finding()))
    assert vigil.latency_s() == pytest.approx(0.5)


def test_a_verdict_is_timed_from_the_end_of_the_fault_s_step_as_well() -> None:
    """What was found in that step took no time after it; a step that never ends has none."""
    vigil = Vigil(fault("nan-gradient"), began_s=90.0, wait_s=20.0)
    found = finding("nonfinite-gradient", where={"parameter": "w"})
    happened = Truth(injected("nonfinite-gradient", where={"parameter": "w"}), at_s=100.0)
    vigil.look(100.1, happened, status())
    assert vigil.after_step_s() is None
    vigil.look(100.5, happened, status(found))
    assert vigil.after_step_s() is None
    vigil.look(100.8, replace(happened, step_over_s=100.7), status(found))
    assert vigil.after_step_s() == 0.0
    assert vigil.latency_s() == pytest.approx(0.5)
    vigil.look(100.9, replace(happened, step_over_s=100.4), status(found))
    assert vigil.after_step_s() == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["slow-forward", "memory-growth", "same-data"])
def test_a_fault_that_lasts_is_not_timed_from_the_end_of_a_step(name: str) -> None:
    """It is found by what many steps have in common, or was there from the start."""
    vigil = Vigil(fault(name), began_s=90.0, wait_s=20.0)
    kind = fault(name).kinds[0]
    happened = Truth(injected(kind), at_s=100.0, step_over_s=100.2)
    vigil.look(101.0, happened, status(finding(kind)))
    assert vigil.latency_s() is not None
    assert vigil.after_step_s() is None


def test_a_wrong_verdict_is_given_time_to_become_right_but_not_for_ever() -> None:
    """Also while the hub says nothing."""
    vigil = Vigil(fault("sigkill"), began_s=90.0, wait_s=20.0)
    assert not vigil.look(101.0, HAPPENED, status(finding("link-lost")))
    assert not vigil.look(119.9, HAPPENED, None)
    assert vigil.look(120.1, HAPPENED, None)
    assert vigil.found is not None
    assert vigil.found.kind == "link-lost"


@pytest.mark.parametrize("name", ["slow-forward", "loader-slow", "memory-growth"])
def test_a_fault_that_lasts_is_given_steps_and_not_seconds_alone(name: str) -> None:
    """It is found by what many steps have in common, however long they take; but not for ever."""
    vigil = Vigil(fault(name), began_s=90.0, wait_s=20.0)
    happened = Truth(injected(fault(name).kinds[0]), at_s=100.0)
    assert not vigil.look(121.0, happened, status(step=16))
    assert not vigil.look(150.0, happened, None)
    assert vigil.look(160.0, happened, status(step=12 + LASTING_STEPS))
    slow = Vigil(fault(name), began_s=90.0, wait_s=20.0)
    assert not slow.look(190.0, happened, status(step=16))
    assert slow.look(221.0, happened, status(step=17))


def test_a_right_verdict_that_goes_wrong_is_waited_for_anew() -> None:
    """A second critical finding may come later."""
    vigil = Vigil(fault("sigkill"), began_s=90.0, wait_s=20.0)
    vigil.look(101.0, HAPPENED, status(finding()))
    assert not vigil.look(
        101.0 + SETTLE_S, HAPPENED, status(finding(), finding("link-lost", ranks=[0]))
    )


def test_a_fault_that_does_not_happen_is_given_up() -> None:
    """Ranks that never start do not keep the drill."""
    vigil = Vigil(fault("sigkill"), began_s=90.0, wait_s=20.0)
    assert not vigil.look(90.0 + START_S, None, status())
    assert vigil.look(90.1 + START_S, None, status())


def test_a_fault_of_the_setup_counts_from_the_first_step() -> None:
    """Before it nothing can be seen of it."""
    vigil = Vigil(fault("same-data"), began_s=90.0, wait_s=20.0)
    early = Truth(injected("duplicate-data", ranks=[0, 1]), at_s=95.0)
    assert not vigil.look(150.0, early, status(step=0))
    assert not vigil.look(151.0, early, status(step=1))
    assert vigil.look(171.1, early, status(step=30))


def test_without_a_fault_every_one_is_injected_once_on_the_last_rank() -> None:
    """Those that cannot be here have a reason instead of a run, as with too few ranks."""
    trials = plan([], "last", Setting(ranks=4))
    assert [trial.spec.name for trial in trials] == [fault.name for fault in FAULTS]
    assert {trial.spec.rank for trial in trials} == {3}
    assert {trial.spec.step for trial in trials} == {1, STEP}
    assert not [trial.spec.name for trial in trials if trial.why_not]
    alone = plan([], "last", Setting(ranks=1))
    assert all(t.why_not for t in alone if t.fault.least_ranks == 2)


def test_ranks_by_their_place() -> None:
    """Each once, also where there are few."""
    assert [ranks_at(at, 8) for at in ("first", "middle", "last", "all")] == [
        [0],
        [4],
        [7],
        [0, 4, 7],
    ]
    assert ranks_at("all", 2) == [0, 1]
    assert ranks_at("all", 1) == [0]


def test_a_trainer_is_started_with_what_the_fault_needs() -> None:
    """Options of its own, and how it is attached."""
    (trial,) = plan(["bit-flip@1:5"], "last", Setting("fsdp2", 2, "plain"))
    command = " ".join(trial.command)
    assert "--replicas 2" in command
    assert "--attach plain" in command
    assert command.endswith("--fault bit-flip@1:5")
    (trial,) = plan(["bit-flip"], "last", Setting("ddp", 2))
    assert "--replicas" not in trial.command


@pytest.mark.parametrize(
    ("wanted", "at", "setting", "says"),
    [
        (["sigkil"], "last", Setting(), "did you mean sigkill"),
        (["sigkill@2:1"], "last", Setting(), "no rank 2"),
        (["sigkill@1"], "last", Setting(), "write it"),
        (["bit-flip"], "last", Setting(ranks=1), "takes at least 2 ranks"),
        ([], "top", Setting(), "--at top"),
        ([], "last", Setting(trainer="jax"), "--trainer jax"),
        ([], "last", Setting(attach="none"), "--attach none"),
        ([], "last", Setting(ranks=0), "at least 1 rank"),
    ],
)
def test_a_drill_that_cannot_be_is_refused(
    wanted: list[str], at: str, setting: Setting, says: str
) -> None:
    """Before anything is started."""
    with pytest.raises(UserError, match=says):
        plan(wanted, at, setting)


def row(fault_: str = "sigkill@1:12", exact: bool = True, **changes: Any) -> DrillRow:
    base = DrillRow(
        fault=fault_, injected=injected(), found=finding(), latency_s=0.4, exact=exact, note=""
    )
    return msgspec.structs.replace(base, **changes)


def test_rows_are_kept_for_the_setting_they_were_made_in(tmp_path: Path) -> None:
    """A second drill finds them; one with other ranks does not."""
    file = tmp_path / "rows.jsonl"
    Book(file, Setting()).add(row())
    assert Book(file, Setting()).get("sigkill@1:12") == row()
    assert Book(file, Setting()).get("sigkill@1:13") is None
    assert Book(file, Setting(ranks=4)).get("sigkill@1:12") is None
    assert Book(None, Setting()).get("sigkill@1:12") is None


def test_a_half_written_row_is_done_again(tmp_path: Path) -> None:
    """What a killed drill leaves; the rows before it count."""
    file = tmp_path / "rows.jsonl"
    book = Book(file, Setting())
    book.add(row())
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:40])
    again = Book(file, Setting())
    assert again.get("sigkill@1:12") == row()
    assert file.read_bytes() == whole


def test_a_file_with_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Also one that cannot be written."""
    file = tmp_path / "thesis.txt"
    file.write_text("Chapter one\n")
    with pytest.raises(UserError, match="name another file"):
        Book(file, Setting())
    assert file.read_text() == "Chapter one\n"
    with pytest.raises(UserError, match="no such file"):
        Book(tmp_path / "no" / "folder", Setting())


def test_a_row_in_words() -> None:
    """Exact ones in a line, the others with what is wrong below."""
    (line,) = (untoned(line) for line in table.lines(row()))
    words = "✓ sigkill@1:12 rank-dead rank 1 step 12, forward 0.4 s"
    assert " ".join(line.split()) == words
    (line,) = (untoned(line) for line in table.lines(row(after_step_s=0.12)))
    assert " ".join(line.split()) == words + " 0.1 s"
    wrong = row("lock@1:12", exact=False, found=None, latency_s=None, note="nothing was found")
    first, note = (untoned(line) for line in table.lines(wrong))
    assert first.split() == ["✗", "lock@1:12", "nothing", "–"]
    assert note == "    nothing was found"
    assert [untoned(line) for line in table.summary([row(), wrong])] == [
        "1 of 2 exact, 0 called something else, 1 not found"
    ]


LONGEST = max((kind for fault in FAULTS for kind in fault.kinds), key=len)


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    "spec",
    ["sigkill@1:12", "skipped-collective@1:12", "nan-gradient@1:12:blocks.1.mlp.up.weight/2"],
)
def test_the_table_fits_the_terminal(width: int, spec: str) -> None:
    """What was found stands in one column, whatever the fault is called and wherever it was."""
    found = finding(LONGEST, ranks=[10, 11], step=123456)
    shown = row(spec, found=found, latency_s=117.25, after_step_s=113.25)
    head = table.heading(Setting(), 46, width)
    body = [untoned(line) for line in table.lines(shown, width)]
    assert all(len(line) <= width for line in (*head, *body)), body
    assert body[-1].index(LONGEST[:8]) == head[-1].index("found")
    assert body[-1].endswith("113.2 s")


def test_how_to_look_at_a_row_is_a_line_of_its_own() -> None:
    """A command that is copied from it is whole, however narrow the terminal."""
    command = "rankscope status /scratch/some/where/quite/far/away/runs/20261129-163000-a3f9ab"
    note = f"nothing was found within 20 s; look with: {command}"
    shown = [untoned(line) for line in table.lines(row(exact=False, note=note), 60)]
    assert shown[1:] == ["    nothing was found within 20 s; look with:", f"    {command}"]


def test_a_rank_s_own_word_is_read_once_it_is_whole(tmp_path: Path) -> None:
    """The file may not be there yet, or a line be half written."""
    file = tmp_path / "fault.jsonl"
    assert truth.read(file) is None
    line = (
        b'{"fault": "sigkill@1:12", "ranks": [1], "step": 12, "kind": "rank-dead", '
        b'"where": {"phase": "forward"}, "at_s": 100.0, "pid": 7}\n'
    )
    file.write_bytes(line[:50])
    assert truth.read(file) is None
    file.write_bytes(line)
    assert truth.read(file) == HAPPENED
    file.write_bytes(line + line + b'{"ended_step": 11, "at_s": 100.2}\n{"ended_step": 12, "at_s"')
    assert truth.read(file) == HAPPENED
    file.write_bytes(line + line + b'{"ended_step": 12, "at_s": 100.5}\n')
    assert truth.read(file) == replace(HAPPENED, step_over_s=100.5)
