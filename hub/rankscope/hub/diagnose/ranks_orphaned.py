"""``ranks-orphaned``: the launcher's command has ended, and ranks of it train on."""

import numpy as np

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.liveness import live
from rankscope.hub.outliving import launcher_how, outlived
from rankscope.hub.stall import stalled_s
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags
from rankscope.hub.state.ranks import FINISHED
from rankscope.protocol.shapes import Finding

MAX_NAMED = 8


def ranks_orphaned(state: RunState, now_s: float) -> list[Finding]:
    """That nobody looks after the ranks any more, from the command's end to theirs; then, that it
    was so."""
    left = outlived(state)
    if state.run_end_s is None or not left.any():
        return []
    # One of them says that the launcher's end was not the ranks': who has not ended is there.
    there = np.flatnonzero(live(state)).tolist()
    how = launcher_how(state)
    if there:
        headline = f"launcher {how}; {len(there)} {_do(state, there, now_s)}"
        next_ = _end(state, there)
    else:
        headline = f"launcher {how} before {_ended(state, left)}"
        next_ = "see in its own output, or in the kernel's log, why the launcher ended first"
    return [
        Finding(
            kind="ranks-orphaned",
            severity="warning",
            ranks=[],
            victims=[],
            step=None,
            since_s=now_s - state.run_end_s,
            headline=headline,
            evidence=[
                "nothing starts them again should one fail, nor ends the others then, and Ctrl-C "
                "does not reach them",
                "where torch's store was the launcher's, as torchrun's is, they cannot agree on "
                "anything any more: no checkpoint is saved, not at its interval either, and they "
                "can neither pause nor stop together",
            ]
            if there
            else [],
            next=next_,
        )
    ]


def _ended(state: RunState, left: Flags) -> str:
    """``ranks 0 and 1 had trained to their end``, ``rank 1 did``: of those that were ``left``."""
    told = ranks_text(np.flatnonzero(left).tolist())
    if (state.ranks.goodbye[: state.size()][left] != FINISHED).any():
        return f"{told} did"
    return f"{told} had trained to the end, which {'they' if left.sum() > 1 else 'it'} did"


def _do(state: RunState, there: list[int], now_s: float) -> str:
    """What ``there`` do, behind their number."""
    one = len(there) == 1
    if stalled_s(state, now_s) is not None:
        return "rank is left" if one else "ranks are left"
    return "rank still trains" if one else "ranks still train"


def _end(state: RunState, there: list[int]) -> str:
    """How they are ended, should that be wanted."""
    hosts = {state.host(rank) for rank in there}
    pids = [state.ranks.pid.item(rank) for rank in there]
    if len(hosts) > 1 or len(there) > MAX_NAMED or min(pids) < 0:
        return "let them finish, or end their processes: rankscope ranks names them"
    host = next(iter(hosts))
    on = f" (on {host})" if host else ""
    return f"let them finish, or end them: kill {' '.join(map(str, pids))}{on}"
