"""The one session of this process, kept so that ``attach``'s result may be discarded."""

import os
import threading
from typing import Any

from rankscope.agent import forks, given
from rankscope.agent.agent import Agent
from rankscope.agent.probes.facts import script_name
from rankscope.agent.session import Session
from rankscope.agent.talk import Sequence
from rankscope.protocol import env

_lock = threading.Lock()
_session: Session | None = None
_agent: Agent | None = None
_sequence = Sequence()


def join(
    model: Any,
    optimizer: Any,
    *,
    checkpoint: object,
    name: str | None,
    start_step: int,
    on_signal: object,
) -> Agent:
    """The process's agent, with ``model`` and ``optimizer`` added to what it watches."""
    global _session, _agent
    with _lock:
        if _session is None or _agent is None or _session.closed:
            forks.watch(_forget)
            called = given.run_name(name or os.environ.get(env.NAME) or script_name())
            session = Session(called, given.start_step(start_step), _sequence)
            session.start()
            _session, _agent = session, Agent(session)
        if checkpoint is not None:
            _session.control_with(checkpoint)
        if on_signal is not None:
            _session.stop_on(on_signal)
        _session.watch(model, optimizer)
        return _agent


def _forget() -> None:
    """In a forked child: the parent's session is not ours. Called with no other thread alive."""
    global _session, _agent, _lock, _sequence
    _lock = threading.Lock()  # the parent may have held it
    session, _session, _agent = _session, None, None
    _sequence = Sequence()
    if session is not None:
        session.abandon()
