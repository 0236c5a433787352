"""``python -m rankscope.hub --replay DIR``: an ended run, answered from its directory."""

import json
import os
import sys
import time

import msgspec
import numpy as np

from rankscope.hub import incidents
from rankscope.hub.clock import FrozenClock
from rankscope.hub.core import Core
from rankscope.hub.liveness import by_host, live
from rankscope.hub.past import Past, PastServer
from rankscope.hub.restore import restore
from rankscope.hub.runstate import run_state
from rankscope.hub.server import Stop, serve_replay
from rankscope.hub.sockets import Sockets
from rankscope.hub.state import RunState
from rankscope.hub.zap import roles_by_key
from rankscope.protocol import messages as m
from rankscope.protocol.keys import ClientKey, new_pair
from rankscope.protocol.rundir import RunDirectory, RunInfo, elsewhere
from rankscope.protocol.shapes import Finding

NAMED_PIDS = 8

ENDED = ("finished", "failed")


def run_replay(directory: RunDirectory) -> None:
    """Serve the run as its recording left it, until stdin closes; requests that name a moment as
    it was then. The run may be a live one, whose recording grows.

    Prints ``{"endpoint", "key"}`` as one JSON line; ``key`` is a viewer's key, made for this.
    """
    directory.check()
    info = directory.read_info()
    stop = Stop()
    hub, viewer = new_pair(), new_pair()
    sockets = Sockets(hub, roles_by_key({"viewer": viewer.public}, ("viewer",)))
    try:
        port = sockets.bind("127.0.0.1", None)
        core, clock = past(directory, info, time.time())
        key = ClientKey("viewer", info.run, viewer.public, viewer.secret, hub.public)
        line = {"endpoint": f"tcp://127.0.0.1:{port}", "key": msgspec.to_builtins(key)}
        print(json.dumps(line), flush=True)
        server = PastServer(Past(directory, info), core)
        serve_replay(server, sockets, clock, sys.stdin.fileno(), stop)
    finally:
        sockets.close()
        # The reader of stdout may be gone: nothing more is to be said to it.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115


def past(directory: RunDirectory, info: RunInfo, asked_s: float) -> tuple[Core, FrozenClock]:
    """The hub as it was at the recording's end, looked at from ``asked_s`` (Unix time)."""
    restored = restore(directory.recording, info.run)
    if restored is not None:
        state, last_s = restored
    else:
        state, last_s = RunState(info.run, info.name), info.ended_s or info.created_s
        state.world_size = 0
    if state.run_end is None and info.exit_code is not None:
        state.run_end = m.RunEnd(info.exit_code)
        state.run_end_s = info.ended_s or last_s
    state.version = max(1, state.version)
    core = Core(state, incidents.Incidents(incidents.read(directory.incidents)), now_s=last_s)
    core.tick(last_s)
    if info.ended_s is None and run_state(state, last_s) not in ENDED:
        core.know.findings.append(_no_hub(state, directory, info, last_s, asked_s))
        state.unwatched = True
    return core, FrozenClock(last_s)


def _no_hub(
    state: RunState, directory: RunDirectory, info: RunInfo, last_s: float, asked_s: float
) -> Finding:
    """The hub ended without a word while the run went on, or is not to be seen from here: all that
    is shown may be long past.

    Training needs no hub: what to look at are the ranks, and a hub can be had again.
    """
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last_s))
    why = "the hub is gone and the run had not ended"
    seen = "no hub holds this run's lock, and run.json names no end"
    step = _look(state, directory)
    if host := elsewhere(info):
        why = f"the run's hub is on {host}, and cannot be seen from this machine"
        seen = f"run.json names {host}, and no end"
        step = f"look there: rankscope top {directory.run} (on {host})"
    return Finding(
        kind="link-lost",
        severity="critical",
        ranks=[],
        victims=[],
        step=None,
        since_s=max(0.0, asked_s - last_s),
        headline=f"nothing is known since {at}: {why}",
        evidence=[
            seen,
            "training does not need its hub: it may well go on",
            "what is shown here is what was known then",
        ],
        next=step,
    )


def _look(state: RunState, directory: RunDirectory) -> str:
    """How to have a hub again, and to see whether the ranks still run."""
    again = f"watch it again: rankscope hub {directory.run}"
    for host, ranks in by_host(np.where(live(state), state.ranks.host[: state.size()], -1)):
        pids = [pid for pid in state.ranks.pid[ranks].tolist() if pid >= 0]
        if pids:
            on = state.words.hosts.values[host]
            shown = ",".join(map(str, pids[:NAMED_PIDS]))
            return f"{again}; whether its ranks still run: ps -p {shown} (on {on})"
    return again
