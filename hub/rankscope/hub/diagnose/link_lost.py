"""``link-lost``: ranks that say nothing although nobody saw them stop or end."""

import numpy as np

from rankscope.hub.diagnose.text import at_text, cpu_text, phase_of, ranks_text, step_in_work
from rankscope.hub.diagnose.waiting import not_advancing
from rankscope.hub.liveness import at_work, by_host, live, sentinel_link, silence_s
from rankscope.hub.outliving import launcher_ended
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ALIVE, STOPPED
from rankscope.hub.state.silence import LOST_S, since_s
from rankscope.protocol.shapes import Finding

MAX_NODE_FINDINGS = 4
"""So many lost nodes are told one by one."""

Places = dict[str, list[int]]
"""Ranks by their host."""


def link_lost(state: RunState, now_s: float) -> list[Finding]:
    """One finding a host and cause: the whole node, or ranks that are alive and do not answer.

    Many nodes at once have one cause, and one finding.
    """
    size = state.size()
    ranks = state.ranks
    waiting = live(state)
    lost = waiting & (silence_s(state, now_s) > LOST_S) & (ranks.process[:size] != STOPPED)
    if state.run_end_s is not None and launcher_ended(state, now_s):
        # Sentinels leave once the run is over, and ranks that are left then are cut off: who was
        # silent before is lost.
        lost &= since_s(ranks)[:size] + LOST_S <= state.run_end_s
    if not lost.any():
        return []
    nodes: Places = {}
    gone: Places = {}
    mute: Places = {}
    for _, here in by_host(ranks.host[:size]):
        silent = here[lost[here]].tolist()
        if not silent:
            continue
        host = state.host(silent[0])
        sentinel = state.nodes.by_host.get(host)
        answers = sentinel_link(sentinel, now_s) == "up"
        if sentinel is not None and not answers and len(silent) == int(waiting[here].sum()):
            nodes[host] = silent
            continue
        for rank in silent:
            if answers and ranks.process[rank] == ALIVE:
                mute.setdefault(host, []).append(rank)
            else:
                gone.setdefault(host, []).append(rank)
    return (
        [_nodes_lost(state, now_s, places) for places in _together(nodes)]
        + [_gone(state, now_s, places) for places in _together(gone)]
        + [_mute(state, now_s, places) for places in _together(mute)]
    )


def _together(places: Places) -> list[Places]:
    """A few hosts one by one, many as one."""
    if len(places) > MAX_NODE_FINDINGS:
        return [places]
    return [{host: ranks} for host, ranks in places.items()]


def _all_ranks(places: Places) -> list[int]:
    return sorted(rank for ranks in places.values() for rank in ranks)


def _where(places: Places) -> str:
    """`` on node-a``, `` on 12 nodes``, or nothing where no host is known."""
    host = next(iter(places))
    if len(places) > 1:
        return f" on {len(places)} nodes"
    return f" on {host}" if host else ""


def _since_s(state: RunState, now_s: float, ranks: list[int]) -> float:
    return now_s - float(np.min(since_s(state.ranks)[ranks]))


def _nodes_lost(state: RunState, now_s: float, nodes: Places) -> Finding:
    """Nodes of which neither a rank nor the sentinel answers."""
    gone = _all_ranks(nodes)
    hosts = list(nodes)
    if len(hosts) == 1:
        who = f"node {hosts[0]} does not answer: {ranks_text(gone)}"
    else:
        who = f"{len(hosts)} nodes do not answer: {ranks_text(gone)}"
    return Finding(
        kind="link-lost",
        severity="critical",
        ranks=gone,
        victims=not_advancing(state, now_s, gone),
        step=step_in_work(state, gone[0]),
        since_s=_since_s(state, now_s, gone),
        headline=who,
        evidence=[f"the sentinel on {host} is silent, too" for host in hosts[:MAX_NODE_FINDINGS]],
        next=f"see whether {hosts[0]} is up and reaches the hub's address",
        where={"phase": phase_of(state, gone[0])},
    )


def _gone(state: RunState, now_s: float, places: Places) -> Finding:
    """Ranks that are silent where no sentinel can say that they live."""
    gone = _all_ranks(places)
    first = gone[0]
    host = state.host(first)
    sentinel = state.nodes.by_host.get(host)
    on_host = f" on {host}" if host else ""
    if sentinel is None:
        witness = f"no sentinel was ever heard of{on_host}"
    elif sentinel_link(sentinel, now_s) == "up":
        witness = f"the sentinel{on_host} answers but does not know of them"
    else:
        witness = f"the sentinel{on_host} is silent, too"
    does = "does" if len(gone) == 1 else "do"
    return Finding(
        kind="link-lost",
        severity="critical",
        ranks=gone,
        victims=not_advancing(state, now_s, gone),
        step=step_in_work(state, first),
        since_s=_since_s(state, now_s, gone),
        headline=f"{ranks_text(gone)}{_where(places)} {does} not answer, "
        f"last {at_text(state, first)}",
        evidence=[witness],
        next=f"see{on_host or ' on its node'} whether the processes are there",
        where={"phase": phase_of(state, first)},
    )


def _mute(state: RunState, now_s: float, places: Places) -> Finding:
    """Ranks that say nothing and live, as their sentinels say."""
    mute = _all_ranks(places)
    first = mute[0]
    verb = "is" if len(mute) == 1 else "are"
    return Finding(
        kind="link-lost",
        severity="info" if all(at_work(state, rank, now_s) for rank in mute) else "warning",
        ranks=mute,
        victims=[],
        step=step_in_work(state, first),
        since_s=_since_s(state, now_s, mute),
        headline=f"{ranks_text(mute)}{_where(places)} {verb} alive but not answering, "
        f"last {at_text(state, first)}",
        evidence=[
            f"sentinel on {state.host(rank)}: pid {state.ranks.pid.item(rank)} is alive; "
            + cpu_text(state, rank, now_s)
            for rank in mute[:6]
        ],
        next="a call into C that holds the interpreter looks like this: take its native stack "
        f"with py-spy dump --native --pid {state.ranks.pid.item(first)}",
        where={"phase": phase_of(state, first)},
    )
