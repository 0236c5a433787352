"""Who is named when ranks end, whatever the order in which the news comes."""

from collections.abc import Callable

import pytest

from rankscope.hub.diagnose.rank_dead import how_ended
from rankscope.protocol import messages as m
from rankscope.protocol.messages import Phase
from support.world import World

Script = Callable[[World], object]


def stepped(ranks: int = 4) -> World:
    world = World(ranks)
    for _ in range(12):
        world.step()
    return world


def torchrun_ends_the_others(world: World, first: int) -> World:
    """SIGTERM to all as soon as one has failed, a tenth of a second later."""
    world.advance(0.1)
    for rank in sorted(world.ranks):
        if rank != first:
            world.kill(rank, 15)
    return world


def test_a_killed_rank_is_named_with_its_signal_step_and_phase() -> None:
    """The verdict on a SIGKILL says who, what, at which step, and in which phase."""
    world = stepped()
    world.kill(2)
    finding = world.finding("rank-dead")
    assert finding.headline == "rank 2 died: SIGKILL, last heard in backward of step 13"
    assert (finding.severity, finding.ranks, finding.victims) == ("critical", [2], [0, 1, 3])
    assert (finding.step, finding.where) == (13, {"phase": "backward"})
    assert finding.evidence[0].startswith("rank 2: pid 1002 ended by signal 9 (SIGKILL)")


@pytest.mark.parametrize(
    ("counted", "oom", "step"),
    [
        (0, False, "somebody sent it"),
        (3, False, "somebody sent it"),  # of others, before
        (None, False, "see whether it was for memory: dmesg | grep -i kill (on node-0)"),
        (1, True, "free host memory"),
        (None, True, "free host memory"),
    ],
)
def test_the_kernels_log_is_read_where_it_may_have_killed_and_does_not_say_so(
    counted: int | None, oom: bool, step: str
) -> None:
    """A node that counts its OOM kills and has counted none leaves somebody else; the evidence
    says which of the two it is."""
    world = stepped()
    world.from_node("node-0", m.NodeReport, processes=(), oom_kills=counted)
    world.kill(2, oom=oom)
    finding = world.finding("rank-dead")
    assert finding.next.startswith(step)
    assert ("dmesg" in finding.next) == (counted is None and not oom)
    whys = {True: "; the kernel killed it for memory", False: "not for memory"}
    why = whys[oom] if oom or counted is not None else "cannot be read there"
    assert why in finding.evidence[0 if oom else 1]


def test_the_verdict_stays_when_the_launcher_has_ended_everything() -> None:
    """The first to die is still the culprit when the others were sent SIGTERM."""
    world = stepped()
    world.kill(2)
    torchrun_ends_the_others(world, 2)
    world.run_end(1)
    world.advance(20.0)
    finding = world.finding("rank-dead")
    assert (finding.ranks, finding.victims) == ([2], [0, 1, 3])
    assert finding.headline.startswith("rank 2 died: SIGKILL")
    assert "ranks 0, 1 and 3 then ended: SIGTERM" in finding.evidence
    assert world.status().state == "failed"


# Each script ends ranks of a four-rank run in some way; who is to blame for it?
ORDERINGS: dict[str, tuple[Script, str, list[int]]] = {
    "a peer raises a connection error": (
        lambda w: (w.kill(2), w.advance(0.1), w.raises(0, "RuntimeError", from_peer=True)),
        "rank-dead",
        [2],
    ),
    "a peer's error comes first, its own death is older": (
        lambda w: (w.raises(0, "RuntimeError", from_peer=True), w.kill(2, ago_s=0.05)),
        "rank-dead",
        [2],
    ),
    "a peer raises something that does not look like a lost peer": (
        lambda w: (w.kill(2), w.advance(0.3), w.raises(0, "RuntimeError"), w.exits(0, 1)),
        "rank-dead",
        [2],
    ),
    "a peer exits with 1": (
        lambda w: (w.kill(2), w.advance(0.1), w.exits(1, 1)),
        "rank-dead",
        [2],
    ),
    "a peer aborts": (
        lambda w: (w.kill(2), w.advance(0.05), w.kill(1, 6)),
        "rank-dead",
        [2],
    ),
    "news of the victim comes before news of the culprit": (
        lambda w: (w.kill(0, 15), w.kill(2, 9, ago_s=0.3)),
        "rank-dead",
        [2],
    ),
    "two are killed at once": (
        lambda w: (w.kill(3), w.kill(1, ago_s=0.1)),
        "rank-dead",
        [1, 3],
    ),
    "the launcher kills what did not heed SIGTERM": (
        lambda w: (w.kill(2), w.kill(0, 15), w.kill(1, 15), w.advance(30.0), w.kill(3, 9)),
        "rank-dead",
        [2],
    ),
    "a segmentation fault": (lambda w: w.kill(1, 11), "rank-dead", [1]),
    "an abort": (lambda w: w.kill(1, 6), "rank-dead", [1]),
    "an exit code": (lambda w: (w.exits(3, 7), torchrun_ends_the_others(w, 3)), "rank-dead", [3]),
    "an early exit with code 0": (lambda w: (w.exits(3, 0), w.advance(1.0)), "rank-dead", [3]),
    "a process that vanished": (
        lambda w: (w.ended(3, how="vanished"), w.advance(1.0)),
        "rank-dead",
        [3],
    ),
    "an exception ends it": (
        lambda w: (w.raises(2), w.exits(2, 1), torchrun_ends_the_others(w, 2)),
        "exception",
        [2],
    ),
    "an exception, and peers that felt it": (
        lambda w: (
            w.raises(2),
            w.advance(0.1),
            w.raises(0, "RuntimeError", from_peer=True),
            w.raises(1, "RuntimeError", from_peer=True),
            w.exits(2, 1),
            w.exits(0, 1),
            w.kill(1, 6),
        ),
        "exception",
        [2],
    ),
    "an exception, and a peer that aborts at once": (
        lambda w: (w.raises(2), w.advance(0.02), w.kill(0, 6)),
        "exception",
        [2],
    ),
    "the same exception on all ranks": (
        lambda w: [w.raises(rank, "FileNotFoundError") for rank in range(4)],
        "exception",
        [0, 1, 2, 3],
    ),
    "different exceptions, the first counts": (
        lambda w: (w.raises(1), w.advance(0.2), w.raises(0, "KeyError", source="other.py:1 in f")),
        "exception",
        [1],
    ),
}


@pytest.mark.parametrize("script", ORDERINGS)
def test_the_first_to_end_is_the_culprit(script: str) -> None:
    """Consequences of an ending are its victims, not findings of their own."""
    play, kind, culprits = ORDERINGS[script]
    world = stepped()
    play(world)
    world.advance(0.5)
    finding = world.finding(kind)
    assert finding.ranks == culprits
    assert finding.severity == "critical"
    assert finding.victims == [rank for rank in range(4) if rank not in culprits]


def test_an_out_of_memory_kill_is_said() -> None:
    """A kill by the kernel for memory is told from one by a person."""
    world = stepped()
    world.kill(2, oom=True)
    finding = world.finding("rank-dead")
    assert finding.headline.startswith(
        "rank 2 died: SIGKILL (OOM kill), last heard in backward of step 13"
    )
    assert "memory" in finding.next
    assert world.status().ranks[2].ended == "SIGKILL (OOM)"


@pytest.mark.parametrize("signal", [2, 15])
def test_a_run_that_was_asked_to_end_accuses_nobody(signal: int) -> None:
    """Ctrl-C or scancel ends all ranks: a warning without a culprit."""
    world = stepped()
    for rank in range(4):
        world.kill(rank, signal)
    world.advance(2.0)
    finding = world.finding("run-interrupted")
    assert (finding.severity, finding.ranks) == ("warning", [])
    assert finding.headline.startswith(f"run was ended by {'SIGINT' if signal == 2 else 'SIGTERM'}")


def test_an_interrupt_that_surfaces_as_an_exception_accuses_nobody() -> None:
    """KeyboardInterrupt in some ranks and SIGTERM in others is one interruption."""
    world = stepped()
    for rank in range(4):
        if rank % 2:
            world.raises(rank, "KeyboardInterrupt")
            world.exits(rank, 1)
        else:
            world.kill(rank, 15)
    world.advance(2.0)
    finding = world.finding("run-interrupted")
    assert (finding.severity, finding.ranks) == ("warning", [])
    assert "SIGINT and SIGTERM" in finding.headline


def test_an_interrupt_is_heeded_by_each_rank_when_it_can() -> None:
    """A rank that waits in a collective does so once the others have gone; nobody is accused."""
    world = stepped()
    world.raises(1, "KeyboardInterrupt")
    for _ in range(8):
        world.advance(0.5)
        assert world.findings() == []
    world.raises(0, "KeyboardInterrupt")
    world.advance(0.5)
    assert world.finding("run-interrupted").ranks == []
    world.exits(1, 130)
    world.advance(0.3)
    for rank in (0, 2, 3):
        world.exits(rank, 130)
        world.advance(1.0)
        finding = world.finding("run-interrupted")
        assert (finding.severity, finding.ranks) == ("warning", [])
        assert finding.headline.startswith("run was ended by SIGINT")
    world.run_end(1)
    assert world.status().findings[0].severity == "warning"


def test_one_rank_that_was_interrupted_alone_is_named() -> None:
    """The launcher ends the others with SIGTERM, when it sees that its process has gone."""
    world = stepped()
    world.raises(1, "KeyboardInterrupt")
    world.advance(2.0)
    world.exits(1, 130)
    world.advance(0.2)
    assert world.findings() == []
    for rank in (0, 2, 3):
        world.kill(rank, 15)
    world.advance(0.5)
    finding = world.finding("rank-dead")
    assert (finding.severity, finding.ranks) == ("critical", [1])


def test_a_rank_that_was_interrupted_and_does_not_go_is_named_in_the_end() -> None:
    """Without a word of how its process ended nothing is made up."""
    world = stepped()
    world.raises(1, "KeyboardInterrupt")
    world.advance(20.0)
    finding = world.finding("rank-dead")
    assert finding.ranks == [1]
    assert finding.headline.startswith("rank 1 died: KeyboardInterrupt in ")
    assert finding.evidence[0] == "rank 1 raised KeyboardInterrupt; its process has not ended"


@pytest.mark.parametrize("behind_s", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("ended", [False, True])
def test_an_end_of_all_that_is_told_rank_by_rank_accuses_nobody(
    behind_s: float, ended: bool
) -> None:
    """On two nodes the second sentinel's word comes when it comes, also after the launcher's; what
    ranks said before comes in between."""
    world = World(2, per_node=1)
    for _ in range(12):
        world.step()
    world.kill(0, 15)
    died_s = world.now_s
    if ended:
        world.run_end(1)
    while world.now_s - died_s < behind_s - 0.05:
        world.now_s += 0.1
        world.beat(1)  # it said this before
        assert world.findings() == []
    world.kill(1, 15, ago_s=world.now_s - died_s)
    found = world.finding("run-interrupted")
    assert (found.severity, found.ranks) == ("warning", [])
    assert [(one.event, one.id) for one in world.log()] == [("opened", "run-interrupted/0/-/13")]


def test_one_rank_that_was_asked_to_end_alone_is_named() -> None:
    """A SIGTERM that hit one rank only, long before the others ended, is that rank's death."""
    world = stepped()
    world.kill(1, 15)
    world.advance(1.0)
    assert world.finding("rank-dead").ranks == [1]


def test_ranks_that_finish_in_order_are_not_dead() -> None:
    """A goodbye and exit 0 are a finding for nobody."""
    world = stepped()
    for rank in range(4):
        world.finish(rank)
        world.advance(0.3)
    world.advance(3.0)
    assert world.findings() == []
    assert world.status().state == "finished"


def test_a_goodbye_may_come_after_the_end_of_its_process() -> None:
    """Two connections, two speeds: exit 0 accuses only when no goodbye follows."""
    world = stepped()
    world.exits(0, 0)
    assert world.findings() == []
    world.goodbye(0)
    world.advance(2.0)
    assert world.findings() == []


def test_a_goodbye_that_was_lost_accuses_nobody() -> None:
    """The rank left word that it had ended in order; one that left none ended early."""
    world = stepped()
    world.exits(0, 0, finished=True)
    world.advance(2.0)
    assert world.findings() == []
    world.exits(1, 0)
    world.advance(2.0)
    assert world.finding("rank-dead").ranks == [1]


def test_an_end_in_order_excuses_no_bad_exit() -> None:
    """What ends a process after its training is an end all the same."""
    world = stepped()
    world.exits(0, 3, finished=True)
    world.advance(2.0)
    assert world.finding("rank-dead").ranks == [0]


def test_ranks_that_finished_before_are_no_victims() -> None:
    """Who had ended in order before the death is not touched by it."""
    world = stepped()
    world.finish(0)
    world.advance(1.0)
    world.kill(2)
    assert world.finding("rank-dead").victims == [1, 3]


def test_a_death_before_the_first_hello_is_told() -> None:
    """A rank that dies while starting is named, although it never said who it is."""
    world = World(2, hello=False)
    world.node_hello("node-0")
    world.exits(1, 1)
    finding = world.finding("rank-dead")
    assert (finding.ranks, finding.step) == ([1], 1)
    assert finding.headline == "rank 1 died: exit 1 while starting"
    assert world.status().state == "failed"


def test_the_age_of_a_death_is_that_of_the_event() -> None:
    """News that comes late makes no death younger."""
    world = stepped()
    world.advance(2.0)
    world.kill(2, ago_s=1.5)
    assert world.finding("rank-dead").since_s == pytest.approx(1.5, abs=0.01)
    world.advance(3.0)
    assert world.finding("rank-dead").since_s == pytest.approx(4.5, abs=0.01)


def test_a_new_attempt_closes_the_findings_of_the_last() -> None:
    """After a restart the old death is history, and the new ranks are judged afresh."""
    world = stepped()
    world.kill(2)
    world.advance(1.0)
    world.new_attempt()
    world.advance(1.0)
    assert world.findings() == []
    status = world.status()
    assert (status.attempt, status.state, status.step) == (1, "starting", 0)
    events = [(i.event, i.id) for i in world.view("incidents").incidents]
    assert events == [("opened", "rank-dead/0/2/13"), ("closed", "rank-dead/0/2/13")]


def test_an_end_reported_after_the_next_attempt_began_goes_to_the_log_only() -> None:
    """Late evidence of an earlier attempt is kept, and accuses no rank of this one."""
    world = stepped()
    old = world.ranks[1].pid
    world.new_attempt()
    world.kill(1, attempt=0, pid=old)
    assert world.findings() == []
    incidents = world.view("incidents").incidents
    assert [(i.event, i.attempt) for i in incidents] == [("opened", 0), ("closed", 0)]
    assert "SIGKILL" in incidents[0].finding.headline
    world.advance(1.0)
    assert len(world.view("incidents").incidents) == 2


def test_a_sentinel_that_repeats_itself_makes_no_new_incident() -> None:
    """Deaths of an earlier attempt, told again to a restarted hub, are in the log already."""
    world = stepped()
    old = {rank: sim.pid for rank, sim in world.ranks.items()}
    world.kill(2).advance(0.1).exits(0, 1).kill(1, 15).advance(1.0)
    world.new_attempt().advance(1.0)
    before = world.view("incidents").incidents
    for rank, signal in ((2, 9), (1, 15)):
        world.kill(rank, signal, attempt=0, pid=old[rank])
    world.exits(0, 1, attempt=0, pid=old[0])
    world.advance(1.0)
    assert world.view("incidents").incidents == before


def test_a_rank_in_its_first_forward_is_named_with_that_phase() -> None:
    """The phase is the last one the rank told of."""
    world = World(2)
    world.advance(0.5)
    world.phase(1, Phase.FORWARD)
    world.kill(1)
    assert (
        world.finding("rank-dead").headline
        == "rank 1 died: SIGKILL, last heard in forward of step 1"
    )


def test_the_phase_of_a_death_is_where_the_rank_worked_last() -> None:
    """An agent that still says "ended" does not hide what the rank was doing."""
    world = stepped(2)
    for rank in (0, 1):
        world.phase(rank, Phase.ENDED)
        world.kill(rank, 9)
    world.advance(1.0)
    assert world.finding("rank-dead").headline == (
        "ranks 0 and 1 died: SIGKILL, last heard in backward of step 13"
    )


def test_a_launcher_that_ends_well_clears_a_silent_exit() -> None:
    """A rank that ended with 0 and lost its goodbye is no problem in a run that ended with 0."""
    world = stepped(2)
    world.finish(0)
    world.exits(1, 0)
    world.run_end(0)
    world.advance(2.0)
    assert world.findings() == []
    assert world.status().state == "finished"


# --- words -----------------------------------------------------------------------------------


def test_evidence_is_told_in_words_of_the_field() -> None:
    """How a sentinel knows is its own affair; what it saw is said."""
    world = stepped()
    world.kill(2, how="zombie").advance(0.1).kill(1, 15, how="pidfd")
    text = " ".join(world.finding("rank-dead").evidence)
    assert "zombie" not in text
    assert "pidfd" not in text
    assert "seen by the sentinel on node-0" in text


def test_a_process_that_is_gone_without_a_trace_is_told_so() -> None:
    """Nobody saw how it ended, and nothing is made up."""
    world = stepped()
    world.ended(3, how="vanished").advance(1.0)
    (first, *_) = world.finding("rank-dead").evidence
    assert first == "rank 3: pid 1003 is gone, and the sentinel on node-0 did not see how it ended"


def test_the_step_in_work_is_not_mistaken_for_the_last_completed_one() -> None:
    """The run is at step 12, which is complete; the rank died in the one after it."""
    world = stepped()
    world.kill(2)
    assert world.status().step == 12
    assert (
        world.finding("rank-dead").headline
        == "rank 2 died: SIGKILL, last heard in backward of step 13"
    )


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        (1, "its terminal was closed: start it in tmux or with nohup"),
        (2, "it was interrupted with Ctrl-C: start it again to go on"),
        (15, "whoever started it, or the scheduler, ended it: start it again to go on"),
    ],
)
def test_an_interrupt_says_what_to_do_and_holds_nobody_up(signal: int, says: str) -> None:
    """No culprit and no victims: nobody waits for anybody."""
    world = stepped()
    for rank in range(4):
        world.kill(rank, signal)
    world.advance(1.0)
    finding = world.finding("run-interrupted")
    assert (finding.severity, finding.ranks, finding.victims) == ("warning", [], [])
    assert finding.next == says
    assert len(finding.evidence) == 4


def test_a_closed_terminal_is_told_though_the_launcher_ended_the_ranks() -> None:
    """The signal that its command ended by counts, too."""
    world = stepped()
    for rank in range(4):
        world.kill(rank, 15)
    world.run_end(1, 1)
    world.advance(1.0)
    assert "tmux" in world.finding("run-interrupted").next


@pytest.mark.parametrize("how", ["killed", "asked", "raised"])
def test_steps_told_after_the_end_that_followed_them_make_no_second_incident(how: str) -> None:
    """Its sentinel's word may be quicker than what a rank said before: it ended once, and the log
    says last in which step that was."""
    world = stepped(2)
    for rank in (0, 1):
        if how == "raised":
            world.raises(rank)
        else:
            world.kill(rank, 9 if how == "killed" else 15)
    world.tick()
    kind = {"raised": "exception", "asked": "run-interrupted", "killed": "rank-dead"}[how]
    for behind in (1, 2):
        world.step(0, 1, step_s=0.01)
        assert world.finding(kind).step == 13 + (0 if how == "raised" else behind)
    told = world.log()
    assert {(one.event, one.id) for one in told} == {("opened", told[0].id)}
    assert told[-1].finding.headline == world.finding(kind).headline
    assert world.core.know.incidents.count == 1


def test_an_end_that_nobody_saw_is_said_to_be_that() -> None:
    """A headline has no hole where the cause would stand."""
    assert how_ended(World(ranks=2).state, 1) == "nobody saw how"


@pytest.mark.parametrize(
    ("code", "signal", "asked"), [(1, None, 15), (143, 15, None), (130, None, None), (1, None, 2)]
)
def test_a_run_that_was_asked_to_end_before_a_rank_was_there_says_so(
    code: int, signal: int | None, asked: int | None
) -> None:
    """Not that no rank called attach, which is no reason: there was no time for it."""
    world = World(2, hello=False)
    world.run_end(code, signal, asked)
    finding = world.finding("run-interrupted")
    name = "SIGINT" if 2 in (asked, code - 128) else "SIGTERM"
    assert finding.headline == f"run was ended by {name} before a rank called attach"
    assert (finding.severity, finding.ranks, finding.victims) == ("warning", [], [])


@pytest.mark.parametrize(("code", "asked"), [(1, None), (0, 15), (0, None)])
def test_a_run_that_ends_by_itself_before_a_rank_was_there_was_not_ended(
    code: int, asked: int | None
) -> None:
    """Nor one that went on to its end all the same."""
    world = World(2, hello=False)
    world.run_end(code, None, asked)
    assert world.findings() == []


@pytest.mark.parametrize(
    ("code", "signal", "name"), [(137, 9, "SIGKILL"), (139, 11, "SIGSEGV"), (137, None, "SIGKILL")]
)
def test_a_launcher_that_is_killed_before_a_rank_was_there_is_told(
    code: int, signal: int | None, name: str
) -> None:
    """It is an incident, and says no more than is known."""
    world = World(2, hello=False)
    world.run_end(code, signal)
    world.advance(0.5)
    found = world.finding("launcher-died")
    assert found.headline == f"command died ({name}) before a rank called attach"
    assert (found.severity, found.ranks) == ("critical", [])
    assert world.status().state == "failed"
    assert [entry.finding.kind for entry in world.log()] == ["launcher-died"]


def test_who_ended_first_is_not_to_blame_where_the_launcher_was_asked() -> None:
    """One rank heeds the signal that the launcher passes on, the others break for want of it."""
    world = stepped()
    world.kill(2, 15)
    world.advance(2.0)
    for rank in (0, 1, 3):
        world.raises(rank, "RuntimeError", from_peer=True).exits(rank, 1)
    world.run_end(1, asked=15)
    finding = world.finding("run-interrupted")
    assert (finding.severity, finding.ranks) == ("warning", [])
    assert finding.headline.startswith("run was ended by SIGTERM")


def test_a_run_that_was_ended_as_a_whole_is_told_by_what_all_have_done() -> None:
    """Not by where one of them was; and that nobody died of himself is a kind of its own."""
    world = World(3)
    for _ in range(4):
        world.step()
    world.step(1, 2)
    world.phase(0, m.Phase.OTHER)
    for rank in range(3):
        world.raises(rank, "KeyboardInterrupt").exits(rank, 130)
    world.run_end(130, None, 2)
    world.advance(1.0)
    finding = world.finding("run-interrupted")
    assert (finding.severity, finding.ranks, finding.step) == ("warning", [], 5)
    assert finding.headline == "run was ended by SIGINT after step 4"
