"""When a rank suspects itself of hanging, what it is asked, and what it says may take long."""

import math
from itertools import pairwise

import numpy as np
import pytest

from rankscope.agent.evidence.answers import Answers
from rankscope.agent.evidence.expecting import Expecting, told_by
from rankscope.agent.evidence.places import Place
from rankscope.agent.evidence.suspicion import PATIENT_S, SUSPECT_S, Suspicion

STEP_S = 0.1

LATE_S = 0.6
"""As the hub has it."""


def warm(step_s: float = STEP_S) -> Suspicion:
    suspicion = Suspicion()
    suspicion.completed([30.0])  # the first one compiles and warms up
    suspicion.completed([step_s] * 5)
    suspicion.look(0.0, "moved", expecting=False)
    return suspicion


def said(suspicion: Suspicion, until_s: float, *, expecting: bool = False) -> list[float]:
    """The moments at which it speaks while nothing moves, looked at ten times a second."""
    moments = (tenth / 10 for tenth in range(1, int(until_s * 10) + 1))
    return [now for now in moments if suspicion.look(now, "moved", expecting=expecting)]


def test_no_progress_for_half_a_second_is_suspicious() -> None:
    """It is said again at once when it lasts, then after 2 s, less and less often, every 10 s."""
    moments = said(warm(), 60.0)
    assert moments[0] == SUSPECT_S
    gaps = [round(later - sooner, 1) for sooner, later in pairwise(moments)]
    assert gaps[:4] == [0.1, 2.0, 3.0, 4.5]
    assert gaps[-1] == 10.0


@pytest.mark.parametrize("seen_late_s", [0.0, 0.03, 0.06, 0.09])
@pytest.mark.parametrize("step_s", [0.01, 0.1, 0.3, 1.0])
def test_a_rank_that_is_late_has_said_so_by_a_look_after(step_s: float, seen_late_s: float) -> None:
    """Whoever is silent is not known to be late, so a word comes as soon as the rank is."""
    suspicion = Suspicion()
    suspicion.completed([step_s] * 9)
    moments = [n / 100 for n in range(int(seen_late_s * 100), 600, 10)]
    words = [now for now in moments if suspicion.look(now, "still", expecting=False)]
    late_s = max(LATE_S, 3 * step_s)
    first = next(word for word in words if word - seen_late_s > late_s - 0.01)
    assert first - seen_late_s <= late_s + 0.21


@pytest.mark.parametrize("seen_late_s", [0.0, 0.03, 0.06, 0.09])
@pytest.mark.parametrize("usual_s", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("long_s", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("every", [3, 10, 19])
def test_a_run_with_some_long_steps_has_its_own_moment_of_being_late(
    usual_s: float, long_s: float, every: int, seen_late_s: float
) -> None:
    """Two long ones; the word comes then and not before."""
    steps_s = [long_s if n % every == 1 else usual_s for n in range(38)]
    suspicion = Suspicion()
    suspicion.completed([30.0, *steps_s])
    moments = [n / 100 for n in range(int(seen_late_s * 100), 600, 10)]
    words = [now for now in moments if suspicion.look(now, "still", expecting=False)]
    late_s = max(LATE_S, 3 * usual_s, 2 * float(np.percentile(steps_s, 95)))
    first = next(word for word in words if word - seen_late_s > late_s - 0.01)
    assert first - seen_late_s <= 1.1 * late_s + 0.21


@pytest.mark.parametrize("seen_late_s", [0.0, 0.03, 0.09])
def test_it_knows_when_it_speaks_next(seen_late_s: float) -> None:
    """Whoever sleeps until then says that the rank is late at the very moment."""
    suspicion = Suspicion()
    suspicion.completed([0.1] * 9)
    now, words = seen_late_s, []
    while now < 1.0:
        if suspicion.look(now, "still", expecting=False):
            words.append(now - seen_late_s)
        now += min(0.1, suspicion.silent_s(now))
    assert words == [pytest.approx(SUSPECT_S, abs=0.1), pytest.approx(LATE_S, abs=0.001)]
    assert suspicion.silent_s(60.0) == math.inf  # nobody came to look, and the time is over


def test_long_steps_are_given_three_times_their_length() -> None:
    """The first step is no measure of how long they take."""
    assert said(warm(1.0), 10.0)[0] == 3.0


def test_movement_ends_the_suspicion() -> None:
    """A collective that was entered, or a phase that changed, starts the time anew."""
    suspicion = warm()
    assert said(suspicion, 0.5) == [0.5]
    assert not suspicion.look(0.7, "moved on", expecting=False)
    assert not suspicion.look(1.1, "moved on", expecting=False)
    assert suspicion.look(1.2, "moved on", expecting=False)


def test_before_the_third_step_and_while_something_long_is_expected_it_is_patient() -> None:
    """A compilation, a rendezvous or an evaluation is no stall."""
    suspicion = Suspicion()
    suspicion.look(0.0, "moved", expecting=False)
    assert said(suspicion, 30.0)[0] == PATIENT_S
    assert said(warm(), 30.0, expecting=True)[0] == PATIENT_S


def test_a_hub_that_is_new_is_told_again() -> None:
    """It has not heard what its predecessor was told."""
    suspicion = warm()
    assert said(suspicion, 0.5) == [0.5]
    suspicion.again()
    assert suspicion.look(0.7, "moved", expecting=False)


def test_the_same_question_is_answered_once_a_second() -> None:
    """Asked sooner it is answered when the second has passed; what nobody offers is not."""
    answers = Answers()
    given: list[float] = []
    answers.offer("stacks", lambda: ())
    for tenth in range(25):
        answers.ask(("nonsense", "stacks"))
        given += [tenth / 10 for _ in answers.due(tenth / 10)]
    assert given == [0.0, 1.0, 2.0]
    assert len(answers.due(3.1)) == 1
    assert not answers.due(9.0)


def test_what_was_declared_last_is_told_first() -> None:
    """Stretches nest, and an exception ends one as well."""
    expecting = Expecting()
    with expecting.declared("evaluation"):
        try:
            with expecting.declared("upload"):
                assert expecting.now() == "upload"
                raise ValueError
        except ValueError:
            pass
        assert expecting.now() == "evaluation"
    assert expecting.now() == ""


def test_two_forwards_without_gradients_are_an_evaluation() -> None:
    """One may be a teacher's; a forward that trains ends it."""
    expecting = Expecting()
    expecting.forward(trains=False)
    assert expecting.now() == ""
    expecting.forward(trains=False)
    assert expecting.now() == "evaluation"
    expecting.forward(trains=True)
    assert expecting.now() == ""


def test_a_stack_tells_what_may_take_long() -> None:
    """The outermost frame that tells decides: a checkpoint that compiles is a checkpoint."""

    def frame(file: str, function: str = "f") -> Place:
        return Place(f"/venv/lib/site-packages{file}", 1, function)

    compiling = frame("/torch/_dynamo/convert_frame.py", "_compile")
    saving = frame("/torch/serialization.py", "_save")
    assert told_by([frame("/sympy/core.py"), compiling, frame("/train.py")]) == "compilation"
    assert told_by([compiling, saving, frame("/train.py")]) == "checkpoint"
    assert told_by([frame("/torch/serialization.py", "validate"), frame("/train.py")]) == ""
    assert told_by([frame("/torch/_dynamo/eval_frame.py", "compile_wrapper")]) == ""
    assert told_by([frame("/torch/utils/data/dataloader.py", "__next__")]) == ""
    assert told_by([frame("/torch/utils/data/dataloader.py", "__init__")]) == "start of the loader"
