"""Words that several findings use."""

import math
import signal as signals
from collections.abc import Sequence

from rankscope.hub.liveness import at_work
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import CPU_WINDOW_S, NO_EXIT_CODE
from rankscope.protocol.messages import Phase

MAX_NAMED = 8
CPU_OVER_S = f"{CPU_WINDOW_S:.0f} to {2 * CPU_WINDOW_S:.0f} s"
PHASE_WORDS = tuple(phase.name.lower() for phase in Phase)


def ranks_text(ranks: Sequence[int]) -> str:
    """``rank 2``, ``ranks 2 and 5``, ``ranks 0–7``, ``ranks 1, 3, 5 … (40 in all)``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}–{ranks[-1]}"
    if len(ranks) > MAX_NAMED:
        named = ", ".join(str(rank) for rank in ranks[:MAX_NAMED])
        return f"ranks {named} … ({len(ranks)} in all)"
    return f"ranks {', '.join(str(rank) for rank in ranks[:-1])} and {ranks[-1]}"


def age_text(seconds: float) -> str:
    """``12 s``, from two minutes on ``3 min``."""
    return f"{int(seconds)} s" if seconds < 120 else f"{int(seconds // 60)} min"


def size_text(size_bytes: float) -> str:
    """``41.2 GB``: three digits, decimal units."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor * 0.9995:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; real-time signals by number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cpu_text(state: RunState, rank: int, now_s: float) -> str:
    """What the sentinel saw a silent rank's process do. CPU time is that of all its threads, over
    a while that may have begun before the rank fell silent."""
    if at_work(state, rank, now_s):
        return (
            "its main thread was running or ready to run all the time: it computes, or other work "
            "has its core"
        )
    used = "CPU time" if state.ranks.cpu_busy[rank] else "no CPU time"
    return f"all its threads together used {used} over the last {CPU_OVER_S}"


def main_thread_text(state: RunState, rank: int) -> str:
    """That its main thread waits, as its sentinel saw last: that other threads compute says nothing
    of it. Empty where it does not."""
    waits = math.isnan(state.ranks.ready_since_s.item(rank))
    return "its main thread was waiting at the last look; " if waits else ""


def ended_text(state: RunState, rank: int) -> str:
    """How the rank's process ended: ``exit 1``, ``SIGKILL (OOM)``, ``vanished``; empty if not."""
    ranks = state.ranks
    ended_s = ranks.ended_s.item(rank)
    if ended_s != ended_s:
        return ""
    number, code = ranks.signal.item(rank), ranks.exit_code.item(rank)
    return how_text(number, None if code == NO_EXIT_CODE else code, bool(ranks.oom_killed[rank]))


def how_text(number: int, exit_code: int | None, oom_killed: bool) -> str:
    """A signal or an exit code in words."""
    if number:
        return signal_name(number) + (" (OOM)" if oom_killed else "")
    return "vanished" if exit_code is None else f"exit {exit_code}"


def phase_of(state: RunState, rank: int) -> str:
    """The phase the rank was last seen working in, as views spell it."""
    code = int(state.ranks.work_phase[rank])
    return PHASE_WORDS[code] if code < len(PHASE_WORDS) else "other"


OUTSIDE = "outside forward, backward and optimizer"
"""Where a rank is whose phase is ``other``: in what the loop does beside training."""


def in_phase(phase: str) -> str:
    """``in backward``; of the phase that is none of training's, what that means."""
    return OUTSIDE if phase == "other" else f"in {phase}"


def step_in_work(state: RunState, rank: int) -> int:
    """The number of the step the rank was working on."""
    return state.ranks.step.item(rank) + 1


def at_text(state: RunState, rank: int) -> str:
    """``in backward of step 13``: the step in work, when the run is at step 12."""
    phase = phase_of(state, rank)
    if phase == "starting":
        return "while starting"
    if phase == "other":
        return f"in step {step_in_work(state, rank)}, {OUTSIDE}"
    return f"in {phase} of step {step_in_work(state, rank)}"


def last_heard(state: RunState, rank: int) -> str:
    """``, last heard in backward of step 13``, to stand behind what became of a rank that can say
    no more: it may have gone on since, by many a phase in which nobody heard it."""
    if phase_of(state, rank) == "starting":
        return f" {at_text(state, rank)}"
    return f", last heard {at_text(state, rank)}"
