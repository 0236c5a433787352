"""When the hub diagnoses next. Pure.

Four times a second; at once where something happened that is worth it; and with every other beat of
the ranks, in the same waking, while little can come of it: every rank goes on, none has ended and
nobody waits for an answer. A round finds the caches cold and takes some milliseconds of a core that
training could have. What is left then is what the numbers of steps tell: a rank says them within
0.45 s, and they wait for at most as long here, so that this, too, is known within a second. Where
all that they told was as usual, and nobody looks, every third beat is enough.
"""

import math

import numpy as np

from rankscope.hub.core import Core
from rankscope.hub.diagnose.gil_held import SILENT_S
from rankscope.hub.diagnose.hang.scene import UNSAID_S
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState, silence
from rankscope.hub.state.moved import moved_s
from rankscope.hub.state.ranks import NO_GOODBYE, UNOBSERVED

TICK_S = 0.25
CALM_TICK_S = (1.0, 1.5)
"""While every rank goes on: where somebody looks or something unusual came, and else. Well below
``AWAY_S``."""

AWAKE_TICK_S = (0.5, 1.2)
"""The same where the hub is awake anyway, having heard something: it costs less then."""

QUIET_S = UNSAID_S + 0.05
"""A rank of which nothing has moved for so long is looked at why: one that goes on says so within
0.45 s, and none is late before that. Whoever stands says so, and what it does, sooner."""

NEXT_WORD_S = (0.4, 0.5)
"""So long after its last word a rank that goes on says the next, and whether it has moved: that is
waited for."""

FEW_RANKS = 1024
"""When the first of more than these stands still is not worked out before its time."""

ONE_BY_ONE = 16
"""Up to so many ranks are sooner looked at one by one."""

LINGER_S = 0.012
"""So long a hub that was woken waits before it takes what has come: the ranks of a node speak at
the same moments (``agent/…/moments.py``), and one waking serves them all."""

CLIENT_S = 2.0
"""Not while a client asks more often than this: it waits for its answer."""

CLOCK_S = 0.001
"""What is silent for longer than so long is so at the next tick of the clock."""

MIN_TICK_S = 0.05
"""An urgent diagnosis follows the one before no sooner."""


class Rhythm:
    """Of one hub; told of each diagnosis."""

    def __init__(self, now_s: float) -> None:
        self.ticked_s = now_s
        self._calm_until_s = -math.inf
        self._seen_version = -1

    def ticked(self, now_s: float) -> None:
        self.ticked_s = now_s

    def due_s(self, core: Core, now_s: float, *, awake: bool = False) -> float:
        """When the next diagnosis is due, as far as is known at ``now_s``."""
        if core.state.urgent:
            return self.ticked_s + MIN_TICK_S
        soon_s = self.ticked_s + TICK_S
        late_s = self.ticked_s + (AWAKE_TICK_S if awake else CALM_TICK_S)[not _matters(core, now_s)]
        if now_s >= late_s:
            return soon_s
        told = any(finding.severity == "critical" for finding in core.know.findings)
        numerics = core.state.numerics
        numbers = numerics.episodes.current is not None or numerics.replicas.divergences
        if told or numbers or core.know.asked is not None:
            return soon_s
        # Ranks only move on: until then it holds. But to see that they have, now that something has
        # come anyway, is cheaper than to wake for it.
        version = core.state.version
        if now_s >= self._calm_until_s or (
            self._calm_until_s < late_s
            and self._seen_version != version
            and core.state.size() <= FEW_RANKS
        ):
            self._calm_until_s, self._seen_version = calm_until_s(core.state), version
        due_s = max(soon_s, min(late_s, self._calm_until_s))
        return min(due_s, self._mute_s(core.state)) if now_s >= self._calm_until_s else due_s

    def _mute_s(self, state: RunState) -> float:
        """When a rank that has said nothing since the last diagnosis is to be looked at from
        outside; infinite where it was then."""
        silent_s = silence.since_s(state.ranks)[: state.size()][live(state)]
        mute_s = float(np.min(silent_s, initial=math.inf)) + SILENT_S + CLOCK_S
        return mute_s if mute_s >= self.ticked_s + MIN_TICK_S else math.inf


def _matters(core: Core, now_s: float) -> bool:
    """Whether what was heard since the last diagnosis is to be looked at soon."""
    state = core.state
    watched = core.client_s is not None and now_s - core.client_s < CLIENT_S
    return watched or state.unusual or bool(state.numerics.outliers or state.numerics.skips)


def lingers(slept_s: float, now_s: float, client_s: float | None) -> bool:
    """Whether a hub that slept for ``slept_s``, until a message came, waits for more to come.

    ``client_s`` is when it last heard a client. One that is woken again at once is busy.
    """
    return slept_s > LINGER_S and (client_s is None or now_s - client_s >= CLIENT_S)


def calm_until_s(state: RunState) -> float:
    """Until then no rank has stood still for so long that it is looked at why, should none move.

    Where steps take long, that is as long as one of them: a rank of such a run stands in a phase
    for seconds as a rule, and none is late before three of them are over. Minus infinity where a
    rank has ended, none has been heard, or the run is over.
    """
    if state.run_end is not None:
        return -math.inf
    return _of_few(state) if state.size() <= ONE_BY_ONE else _of_many(state)


def _of_few(state: RunState) -> float:
    """The same as of many, rank by rank: this is asked at every waking, and to call numpy for two
    ranks takes five times as long."""
    ranks, progress_s = state.ranks.cells, state.progress.moved_s
    unobserved, step_s = False, math.inf
    heard = []
    for rank in range(min(state.size(), state.ranks.size)):
        goodbye, ended_s, heard_s = ranks.goodbye[rank], ranks.ended_s[rank], ranks.heard_s[rank]
        if goodbye == UNOBSERVED:
            unobserved = True
        elif goodbye != NO_GOODBYE or ended_s == ended_s:
            return -math.inf
        elif heard_s == heard_s:
            moved_s, other_s = ranks.moved_s[rank], float(progress_s[rank])
            heard.append(
                (moved_s if moved_s >= other_s or other_s != other_s else other_s, heard_s)
            )
            took_s = ranks.step_s[rank]
            step_s = took_s if took_s < step_s else step_s
    if not heard:
        return math.inf if unobserved else -math.inf
    patience_s = max(QUIET_S, step_s) if step_s < math.inf else QUIET_S
    return min(_trouble_s(moved_s + patience_s, heard_s) for moved_s, heard_s in heard)


def _trouble_s(still_s: float, heard_s: float) -> float:
    """When a rank that stands from ``still_s`` on is looked at: its next word is waited for."""
    if still_s != still_s:
        return -math.inf
    if heard_s + NEXT_WORD_S[0] < still_s < heard_s + NEXT_WORD_S[1]:
        return heard_s + NEXT_WORD_S[1]
    return still_s


def _of_many(state: RunState) -> float:
    ranks = state.ranks
    unobserved = ranks.goodbye == UNOBSERVED
    heard = ranks.heard() & ~unobserved
    if (ranks.over() & ~unobserved).any():
        return -math.inf
    if not heard.any():
        return math.inf if unobserved.any() else -math.inf
    step_s = float(np.fmin.reduce(ranks.step_s[heard]))  # NaN before the first
    still_s = moved_s(state)[heard] + (step_s if step_s > QUIET_S else QUIET_S)
    word_s = ranks.heard_s[heard]
    # As ``_trouble_s`` says of one.
    speaks = (still_s > word_s + NEXT_WORD_S[0]) & (still_s < word_s + NEXT_WORD_S[1])
    first_s = float(np.min(np.where(speaks, word_s + NEXT_WORD_S[1], still_s)))
    return first_s if first_s == first_s else -math.inf
