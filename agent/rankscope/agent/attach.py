"""``attach``: the one call that begins the observation of a process."""

import logging
import os
from typing import TYPE_CHECKING

from rankscope.agent import switch
from rankscope.agent.agent import Agent
from rankscope.protocol import env

if TYPE_CHECKING:
    import torch

log = logging.getLogger("rankscope")


def attach(
    model: "torch.nn.Module",
    optimizer: "torch.optim.Optimizer | None" = None,
    *,
    checkpoint: object = None,
    name: str | None = None,
    start_step: int = 0,
    on_signal: object = None,
) -> Agent:
    """Observe the training of ``model`` with ``optimizer``; begins at once, and never raises.

    The call is complete by itself: the result may be discarded, and observing ends with the
    interpreter. A second call joins the first: the first model counts the microbatches, the first
    optimizer marks the steps of a loop that does not call ``end_step``.

    ``name`` is what the run is called on screen (else ``RANKSCOPE_NAME``, else the script's name).
    ``start_step`` is the number of updates a resumed run has already made. ``checkpoint``, a
    :class:`~rankscope.agent.checkpoint.Checkpointer`, saves when an operator asks, at a call of
    ``end_step``.

    ``on_signal``, a signal or a list of them (``signal.SIGUSR1``), is a scheduler's warning: the
    ranks save and stop at their next common boundary, whichever of them it is sent to. Give it on
    all ranks, in the main thread, to a loop that calls ``end_step`` and looks at what that returns.
    A handler that was there before is called as ever; where there was none, the signal acts as it
    would without this when no such boundary comes within 5 s (or three steps), when the save fails,
    and when it is sent a second time.

    ``RANKSCOPE=off`` makes this a no-op.
    """
    if os.environ.get(env.SWITCH, "").strip().lower() == "off":
        return Agent(None)
    try:
        from rankscope.agent import registry

        return registry.join(
            model,
            optimizer,
            checkpoint=checkpoint,
            name=name,
            start_step=start_step,
            on_signal=on_signal,
        )
    except Exception as error:
        if switch.is_users(error):
            raise
        log.warning("rankscope: training goes on unwatched: %s: %s", type(error).__name__, error)
        return Agent(None)
