"""Control as a process has it: over torch's own store, or alone."""

import itertools
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch.distributed as dist

from rankscope.agent import identity
from rankscope.agent.control.control import Control
from rankscope.agent.control.signals import Signals, numbers

log = logging.getLogger("rankscope")

_ordinals = itertools.count()


class Unable(RuntimeError):
    """The ranks cannot hear of each other; the text says why."""


def control(start_step: int, during: Callable[[str], AbstractContextManager[None]]) -> Control:
    """Of a session; the sessions of a process are told apart by their order.

    A launcher's store may outlive the ranks it restarts: what those before had to say to each other
    is not for these.
    """
    prefix = f"rankscope/control/{identity.life()}/{next(_ordinals)}"
    return Control(start_step, prefix, place, store, during=during)


def place() -> tuple[int, int]:
    """Rank and world size: of the default process group, or of a process alone.

    Raises :class:`Unable` where a launcher has started several ranks that have no group.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    launched = identity.from_environ()
    if launched is not None and launched.world_size > 1:
        raise Unable("torch.distributed is not initialised: the ranks cannot agree")
    return 0, 1


def store() -> Any:
    """A connection to the ranks' store for control alone."""
    from rankscope.agent.checkpoint import stores

    return stores.shared() if place()[1] > 1 else stores.alone()


def signals(given: Any, asked: Control) -> Signals | None:
    """What ``on_signal`` asks for, or None and a line on why not. Never an error."""
    wanted = numbers(given)
    if not wanted:
        return None
    found = Signals(wanted, asked)
    try:
        found.install()
    except ValueError:
        log.warning("rankscope: on_signal: call attach in the main thread for it")
        return None
    if asked.saver is None:
        log.warning(
            "rankscope: on_signal without checkpoint=: the ranks stop, and nothing is saved"
        )
    return found
