"""``link-lost``: ranks that say nothing although nobody saw them stop or end."""

import numpy as np

from rankscope.hub.diagnose.text import at_text, phase_of, ranks_text, step_in_work
from rankscope.hub.diagnose.waiting import not_advancing
from rankscope.hub.liveness import LOST_S, live, sentinel_link, silence_s
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ALIVE, STOPPED
from rankscope.protocol.shapes import Finding

CPU_FRESH_S = 3.0
"""CPU time that grew within this long is moving: a sentinel samples every second."""


def link_lost(state: RunState, now_s: float) -> list[Finding]:
    """One finding a host and cause: the whole node, or ranks that are alive and do not answer."""
    size = state.size()
    ranks = state.ranks
    waiting = live(state)
    lost = waiting & (silence_s(state, now_s) > LOST_S) & (ranks.process[:size] != STOPPED)
    if not lost.any():
        return []
    findings = []
    hosts = ranks.host[:size]
    for host in np.unique(hosts[lost]).tolist():
        here = hosts == host
        silent = np.flatnonzero(lost & here).tolist()
        name = state.host(silent[0])
        answers = sentinel_link(state, name, now_s) == "up"
        alive = [rank for rank in silent if answers and ranks.process[rank] == ALIVE]
        gone = [rank for rank in silent if rank not in set(alive)]
        if gone:
            whole = not answers and len(gone) == int((waiting & here).sum())
            findings.append(_gone(state, now_s, gone, name, whole))
        for moving in (True, False):
            same = [rank for rank in alive if _cpu_moves(state, rank, now_s) == moving]
            if same:
                findings.append(_mute(state, now_s, same, name, moving))
    return findings


def _cpu_moves(state: RunState, rank: int, now_s: float) -> bool:
    return bool(now_s - state.ranks.cpu_moved_s.item(rank) <= CPU_FRESH_S)


def _since_s(state: RunState, now_s: float, ranks: list[int]) -> float:
    return now_s - float(np.min(state.ranks.heard_s[ranks]))


def _gone(state: RunState, now_s: float, gone: list[int], host: str, whole_node: bool) -> Finding:
    first = gone[0]
    sentinel = state.nodes.of_host(host)
    if sentinel is None:
        witness = f"no sentinel was ever heard of on {host}"
    elif sentinel_link(state, host, now_s) == "up":
        witness = f"the sentinel on {host} answers but does not know of them"
    else:
        witness = f"the sentinel on {host} is silent, too"
    if whole_node and sentinel is not None:
        headline = f"node {host} does not answer: {ranks_text(gone)}"
        remedy = f"see whether {host} is up and reaches the hub's address"
    else:
        does = "does" if len(gone) == 1 else "do"
        headline = f"{ranks_text(gone)} on {host} {does} not answer, last {at_text(state, first)}"
        remedy = f"see on {host} whether the processes are there: rankscope doctor"
    return Finding(
        kind="link-lost",
        severity="critical",
        ranks=gone,
        victims=not_advancing(state, now_s, gone),
        step=step_in_work(state, first),
        since_s=_since_s(state, now_s, gone),
        headline=headline,
        evidence=[witness],
        next=remedy,
        where={"phase": phase_of(state, first)},
    )


def _mute(state: RunState, now_s: float, mute: list[int], host: str, moving: bool) -> Finding:
    first = mute[0]
    verb = "is" if len(mute) == 1 else "are"
    cpu = "uses CPU time" if moving else "uses no CPU time"
    return Finding(
        kind="link-lost",
        severity="warning",
        ranks=mute,
        victims=[],
        step=step_in_work(state, first),
        since_s=_since_s(state, now_s, mute),
        headline=f"{ranks_text(mute)} on {host} {verb} alive but not answering, "
        f"last {at_text(state, first)}",
        evidence=[
            f"sentinel on {host}: pid {state.ranks.pid.item(rank)} is alive and {cpu}"
            for rank in mute[:6]
        ],
        next="a call into C that holds the interpreter looks like this: take its native stack "
        f"with py-spy dump --native --pid {state.ranks.pid.item(first)}",
        where={"phase": phase_of(state, first)},
    )
