"""Which commands on the run would be accepted now, and why the others would not. Pure."""

import numpy as np

from rankscope.hub.liveness import live
from rankscope.hub.runstate import ENDED, run_state
from rankscope.hub.stall import has_stepped
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ENDED as GONE

COMMANDS = ("checkpoint", "checkpoint-and-stop", "stop", "pause", "resume", "cancel")
SAVING = ("checkpoint", "checkpoint-and-stop")

MAX_SHOWN = 4


def refusals(state: RunState, busy: str, now_s: float) -> dict[str, str]:
    """For each command why it would be refused, in words; empty when it would be accepted.

    ``busy`` says what is asked for already, and by whom; empty when nothing is. A pause that the
    ranks are in is not among that: they save, and stop, where they stand.
    """
    if state.unwatched:
        return dict.fromkeys(COMMANDS, UNWATCHED)
    over = run_over(state, now_s)
    if over:
        return dict.fromkeys(COMMANDS, over)
    paused = is_paused(state)
    everybody, no_saver = _unable(state), _no_saver(state)
    found = {}
    for command in COMMANDS:
        if command == "resume":
            why = "" if paused else "the run is not paused"
        elif command == "cancel":
            why = "" if busy or state.saves.in_work() else paused or NOTHING
        else:
            why = (paused or "" if command == "pause" else "") or busy
            if command in SAVING:
                why = no_saver or everybody or why or _in_a_save(state)
            else:
                why = everybody or why
        found[command] = why
    return found


UNWATCHED = "the hub is gone: nobody is there to follow it"
NOTHING = "there is nothing to cancel: no request is pending and no checkpoint is being saved"


def run_over(state: RunState, now_s: float) -> str:
    return "the run is over" if run_state(state, now_s) in ENDED else ""


def is_paused(state: RunState) -> str | None:
    """In words, when the ranks stand at a boundary for a pause; None when they do not."""
    for rank in sorted(state.controls.held):
        row = state.controls.rows[rank]
        if row.phase == "paused":
            return f"the run is paused after step {row.boundary} by {row.author}: rankscope resume"
    return None


def _no_saver(state: RunState) -> str:
    rows = state.controls.rows
    if rows and not any(row.saver for row in rows.values()):
        return "this run has no checkpointer: attach(…, checkpoint=Checkpointer(…))"
    absent = [rank for rank, row in rows.items() if not row.saver]
    return f"{have(sorted(absent))} no checkpointer" if absent else ""


def _unable(state: RunState) -> str:
    """Why not all ranks can take part in an agreement."""
    size = state.size()
    ranks, rows = state.ranks, state.controls.rows
    if not rows and not bool(ranks.boundary[:size].any()):
        if not has_stepped(state):
            return "not yet: no step has ended, and this run gave no boundary so far"
        return "this run gave no boundary: its loop has not called agent.end_step"
    unheard = np.flatnonzero(~ranks.known[:size]).tolist()
    if unheard:
        return f"{have(unheard)} not been heard of: attach is to be called on all ranks"
    over = np.flatnonzero(~live(state) | (ranks.process[:size] == GONE)).tolist()
    if over:
        missing = "it" if len(over) == 1 else "them"
        return f"{have(over)} ended: the ranks cannot agree without {missing}"
    silent = [rank for rank in range(size) if rank not in rows] if len(rows) < size else []
    if silent:
        return f"{some(silent)} gave no boundary yet: no call of end_step"
    for rank, row in rows.items():
        if row.unable:
            return f"rank {rank} cannot follow requests: {row.unable}"
        if row.stop_step:
            return f"training was told to stop after step {row.stop_step} already"
    return ""


def _in_a_save(state: RunState) -> str:
    for row in state.saves.in_work().values():
        return f"a checkpoint of step {row.step} is being saved"
    return ""


def some(ranks: list[int]) -> str:
    shown = " ".join(map(str, ranks[:MAX_SHOWN]))
    more = f" and {len(ranks) - MAX_SHOWN} more" if len(ranks) > MAX_SHOWN else ""
    return f"rank{'s' * (len(ranks) > 1)} {shown}{more}"


def have(ranks: list[int]) -> str:
    """``rank 1 has``, ``ranks 0 1 have``."""
    return f"{some(ranks)} {'has' if len(ranks) == 1 else 'have'}"
