"""That a run is ending: some of its ranks have ended, and others, or their launcher, have not."""

import numpy as np

from rankscope.hub.diagnose.text import ended_text, ranks_text
from rankscope.hub.liveness import live
from rankscope.hub.runstate import ENDED
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import EXCEPTION, NO_GOODBYE, UNOBSERVED
from rankscope.protocol.shapes import State


def ending(state: RunState, word: State) -> str:
    """``rank 1 has ended (KeyboardInterrupt), rank 0 has not``; empty while all are there.

    Of a run that is over (``word``, its state) whose ranks' last words did not come, that. A rank
    that is merely watched no more has not ended.
    """
    ranks = state.ranks
    if word in ENDED:
        return _unheard(state) if word == "finished" else ""
    over = ranks.over()[: state.size()] & (ranks.goodbye[: state.size()] != UNOBSERVED)
    if not over.any():
        return ""
    gone = np.flatnonzero(over)
    # Times of ends are few and known to a hub from two senders: the first of either kind.
    ends_s = np.fmin(ranks.goodbye_s[gone], ranks.ended_s[gone])
    first = int(gone[int(np.nanargmin(ends_s))]) if not np.isnan(ends_s).all() else int(gone[0])
    there = np.flatnonzero(live(state)).tolist()
    how = _how(state, first)
    if gone.size > 1:
        how = f"first rank {first}: {how}"
    have = "has" if gone.size == 1 else "have"
    if there:
        others = f"{ranks_text(there)} {'has' if len(there) == 1 else 'have'} not"
    elif state.launched:
        others = "the launcher has not"
    else:
        others = "how the run ended is not known yet"
    return f"{ranks_text(gone.tolist())} {have} ended ({how}), {others}"


def _how(state: RunState, rank: int) -> str:
    raised = state.words.exceptions.get(rank)
    if raised is not None:
        return raised.type
    text = ended_text(state, rank)
    if text and text != "exit 0":
        return text
    return "an exception" if state.ranks.goodbye[rank] == EXCEPTION else "in order"


def _unheard(state: RunState) -> str:
    """Whose last words did not come, of a run that ended in order: it may have gone on after the
    step that is known (no hub looked then, or they were lost)."""
    ranks, size = state.ranks, state.size()
    unheard = ranks.heard() & (ranks.unheard | (ranks.goodbye == NO_GOODBYE))
    gone = np.flatnonzero(unheard[:size]).tolist()
    return f"the last words of {ranks_text(gone)} were not heard" if gone else ""
