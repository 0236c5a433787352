"""The phase machine: events in, durations out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.agent.clock.phases import Phases
from rankscope.protocol.messages import Phase

D, F, B, O = Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER  # noqa: E741


def machine(script: str, start_step: int = 0) -> Phases:
    """A machine fed with ``script``: ``D+`` opens data, ``D-`` closes it, one second each."""
    phases = Phases(0.0, start_step)
    letters = {"D": D, "F": F, "B": B, "O": O}
    for second, word in enumerate(script.split(), start=1):
        if word == "step":
            phases.complete(second)
        elif word == "E+":
            phases.begin(F, second, evaluates=True)
        elif word == "G+":
            phases.begin(F, second, counts=False)
        elif word[1] == "+":
            phases.begin(letters[word[0]], second)
        else:
            phases.end(letters.get(word[0], F), second)
    return phases


PLAIN = "D+ D- F+ F- B+ B- O+ O-"


@pytest.mark.parametrize(
    ("script", "phase", "microbatch", "step"),
    [
        ("", Phase.STARTING, 0, 0),
        ("D+", D, 0, 0),
        ("D+ D-", Phase.OTHER, 0, 0),
        ("D+ D- F+", F, 1, 0),
        ("F+ F- B+", B, 1, 0),
        ("F+ F- B+ B- F+", F, 2, 0),
        (PLAIN, Phase.OTHER, 1, 0),
        (f"{PLAIN} step", Phase.OTHER, 0, 1),
        (f"{PLAIN} step F+", F, 1, 1),
        ("F+ F- B+ F+", B, 1, 0),  # checkpointing computes a forward anew inside backward
        ("F+ F- B+ F+ F-", B, 1, 0),
        ("F+ F- B+ F+ F- B-", Phase.OTHER, 1, 0),
        ("E+", Phase.OTHER, 0, 0),  # evaluation is no forward of training
        ("E+ F-", Phase.OTHER, 0, 0),
        ("G+", F, 0, 0),  # of a further model
        ("F+ F+", F, 1, 0),  # a part of the model that is watched too
        ("F+ F+ F-", F, 1, 0),
        ("O+ F+ F- B+ B-", O, 1, 0),  # a closure runs inside the optimizer
        ("B+", B, 1, 0),  # a forward that hooks did not see
        ("B+ B- B+", B, 2, 0),
        ("B+ B+ B- B-", Phase.OTHER, 1, 0),  # reentrant checkpointing
        ("O+ step", Phase.OTHER, 0, 1),  # a bracket left open ends with its step
        ("O+ step O-", Phase.OTHER, 0, 1),
        ("F-", Phase.STARTING, 0, 0),  # attached inside a forward
        ("F+ D+ F-", Phase.OTHER, 1, 0),  # an exception left data open
    ],
)
def test_the_innermost_open_bracket_is_shown(
    script: str, phase: Phase, microbatch: int, step: int
) -> None:
    """Phase, microbatch and step follow from the brackets that are open."""
    snapshot = machine(script).snapshot
    assert (snapshot.phase, snapshot.microbatch, snapshot.step) == (phase, microbatch, step)


def test_each_second_goes_to_one_phase() -> None:
    """A step's durations are those of its brackets, and the rest is other."""
    phases = machine("D+ D- F+ F- B+ B- F+ F- B+ B- O+ O-")
    times = phases.complete(20.0)
    assert (times.data_s, times.forward_s, times.backward_s, times.optimizer_s) == (1, 2, 2, 1)
    assert (times.step_s, times.other_s, times.microbatches, times.t_s) == (19, 13, 2, 20)


def test_a_step_begins_where_the_last_one_ended() -> None:
    """The first step begins with its first event, not with attaching; later ones leave no gap."""
    phases = machine("D+ D- step F+ F- step")
    times = phases.complete(10.0)
    assert times.step == 3
    assert times.step_s == 4


def test_nested_brackets_share_the_time() -> None:
    """Forward and backward of a closure are taken out of the optimizer's time."""
    times = machine("O+ F+ F- B+ B- O-").complete(7.0)
    assert (times.optimizer_s, times.forward_s, times.backward_s) == (3, 1, 1)


def test_an_unseen_forward_gets_the_time_before_backward() -> None:
    """Where hooks see no forward, the time right before backward is taken for it."""
    times = machine("D+ D- B+ B-").complete(6.0)
    assert (times.data_s, times.forward_s, times.backward_s, times.other_s) == (1, 1, 1, 2)


def test_the_tail_of_a_step_can_be_added() -> None:
    """A step that just ended is extended without another being counted."""
    phases = machine("F+ F- step")
    assert phases.fresh
    times = phases.extend(9.0)
    assert (times.step, times.t_s, times.step_s, times.other_s) == (1, 9, 8, 7)
    assert phases.complete(10.0).step_s == 1


def test_nothing_is_extended_once_the_next_step_began() -> None:
    """After a new bracket the last step stands."""
    phases = machine("F+ F- step D+")
    assert not phases.fresh
    with pytest.raises(ValueError, match="no step"):
        phases.extend(9.0)


def test_a_resumed_run_goes_on_counting() -> None:
    """start_step is the number of updates made before."""
    phases = machine("F+ F-", start_step=40)
    assert phases.snapshot.step == 40
    assert phases.complete(5.0).step == 41


def test_activity_moves_with_every_change() -> None:
    """The counter tells a thread that moves from one that does not."""
    before = machine("F+ F-").snapshot.activity
    assert machine("F+ F- B+").snapshot.activity > before


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "end", "complete", "evaluate"]),
            st.sampled_from([D, F, B, O]),
            st.floats(0, 10),
        ),
        max_size=60,
    )
)
def test_durations_add_up_whatever_happens(moves: list[tuple[str, Phase, float]]) -> None:
    """However brackets nest or go missing, a step's durations add up to its own, none negative."""
    now = 0.0
    phases = Phases(now)
    for move, phase, wait_s in moves:
        now += wait_s
        if move == "begin":
            phases.begin(phase, now)
        elif move == "evaluate":
            phases.begin(F, now, evaluates=True)
        elif move == "end":
            phases.end(phase, now)
        else:
            _, _, step_s, *parts, _ = phases.complete(now)
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(step_s, abs=1e-9)
