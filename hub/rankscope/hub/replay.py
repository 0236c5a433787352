"""``python -m rankscope.hub --replay DIR``: an ended run, answered from its directory."""

import json
import os
import sys

import msgspec

from rankscope.hub import incidents
from rankscope.hub.clock import FrozenClock
from rankscope.hub.core import Core
from rankscope.hub.restore import restore
from rankscope.hub.server import Stop, serve_replay
from rankscope.hub.sockets import Sockets
from rankscope.hub.state import RunState
from rankscope.hub.zap import roles_by_key
from rankscope.protocol import messages as m
from rankscope.protocol.keys import ClientKey, new_pair
from rankscope.protocol.rundir import RunDirectory, RunInfo


def run_replay(directory: RunDirectory) -> None:
    """Serve the run as its recording left it, until stdin closes.

    Prints ``{"endpoint", "key"}`` as one JSON line; ``key`` is a viewer's key, made for this.
    """
    directory.check()
    info = directory.read_info()
    stop = Stop()
    hub, viewer = new_pair(), new_pair()
    sockets = Sockets(hub, roles_by_key({"viewer": viewer.public}, ("viewer",)))
    try:
        port = sockets.bind("127.0.0.1", None)
        core, clock = past(directory, info)
        key = ClientKey("viewer", info.run, viewer.public, viewer.secret, hub.public)
        line = {"endpoint": f"tcp://127.0.0.1:{port}", "key": msgspec.to_builtins(key)}
        print(json.dumps(line), flush=True)
        serve_replay(core, sockets, clock, sys.stdin.fileno(), stop)
    finally:
        sockets.close()
        # The reader of stdout may be gone: nothing more is to be said to it.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115


def past(directory: RunDirectory, info: RunInfo) -> tuple[Core, FrozenClock]:
    """The hub as it was at the recording's end."""
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
    return core, FrozenClock(last_s)
