"""What is to be done next once the process that a finding names is gone. Pure.

A hang stays the verdict of a run that was ended in it, with all that was seen; but a process that
has ended is neither to be sent a signal nor to be read, and its number may be another's by then.
"""

import re

import msgspec

from rankscope.hub.diagnose.rank_stopped import go_on
from rankscope.hub.runstate import ENDED, run_state
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

OF_A_PROCESS = re.compile(r"(?P<how>kill -CONT|py-spy dump.* --pid) (?P<pid>[0-9]+)")

WHO_STOPPED_IT = (
    "find out who stopped it (a debugger, job control of a shell, a suspend of its scheduler) "
    "before it is started again"
)


def afterwards(state: RunState, findings: list[Finding], now_s: float) -> list[Finding]:
    """``findings``, none of which says to do something with a process that is gone."""
    return [_afterwards(state, finding, now_s) for finding in findings]


def _afterwards(state: RunState, finding: Finding, now_s: float) -> Finding:
    named = OF_A_PROCESS.search(finding.next)
    if named is None:
        return finding
    over = state.ranks.over()
    ended = run_state(state, now_s) in ENDED
    concerned = [rank for rank in (*finding.ranks, *finding.victims) if rank < state.size()]
    here = [rank for rank in concerned if state.ranks.pid.item(rank) == int(named["pid"])]
    if not here or not (ended or over[here].all()):
        return finding
    if named["how"] == "kill -CONT":
        left = [rank for rank in finding.ranks if rank in concerned and not (ended or over[rank])]
        next_ = go_on(state, left[0]) if left else WHO_STOPPED_IT
    else:
        next_ = f"see where it was: rankscope stacks --rank {here[0]}"
    return msgspec.structs.replace(finding, next=next_)
