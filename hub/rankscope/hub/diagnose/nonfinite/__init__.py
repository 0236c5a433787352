"""``nonfinite-…``: the first number that was not finite, told apart from all that it infected."""

import numpy as np

from rankscope.hub.covered import large_every
from rankscope.hub.diagnose.nonfinite import evidence as lines
from rankscope.hub.diagnose.nonfinite.origin import Origin, origins
from rankscope.hub.diagnose.nonfinite.sentences import first, headline, next_step
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.numerics.episodes import Episode
from rankscope.hub.state.numerics.logs import UNKNOWN, norms
from rankscope.hub.state.saves import Outcome, Resumed
from rankscope.protocol.messages import Stage
from rankscope.protocol.shapes import Finding

PATIENCE_S = 3.0
"""The ranks tell the rest of a step within this time, also when the step does not end."""

BACKOFF_STEPS = 20
"""A gradient scaler that starts at 2^16 is at 1 after sixteen steps: beyond, it is no back-off."""


def nonfinite(state: RunState, now_s: float) -> list[Finding]:
    """What the open episode began with: one finding for each kind of beginning."""
    episodes = state.numerics.episodes
    found = []
    if episodes.current is not None and _told(state, episodes.current, now_s):
        found += _findings(state, episodes.current, now_s, by_scaler=False)
    scaled = episodes.scaled
    if scaled is not None and scaled.bad_steps >= BACKOFF_STEPS:
        found += _findings(state, scaled, now_s, by_scaler=True)
    return found


def _told(state: RunState, episode: Episode, now_s: float) -> bool:
    """Whether all that is to be known of the first bad step has been told, so that the verdict
    will stand."""
    if now_s - episode.heard_s >= PATIENCE_S:
        return True
    # A rank that was not heard of yet may have all to tell: ranks find their hub one by one.
    if state.numerics.complete >= episode.first_step and state.ranks.heard()[: state.size()].all():
        return True
    here = episode.first_seen()
    # Nothing comes before an input; the rest may still be explained by an earlier stage.
    return any(seen.has(Stage.INPUT) for seen in here.values()) or not live(state).any()


def _before(state: RunState, step: int) -> Outcome | Resumed | None:
    """The newest checkpoint of before ``step`` that is finite as far as is known; one of the
    program's own, which it went on from, where there is no other."""
    own = state.saves.resumed
    found = state.saves.finite(step)
    if found is None and own is not None and own.step < step and not own.notfinite:
        return own
    return found


def _findings(state: RunState, episode: Episode, now_s: float, *, by_scaler: bool) -> list[Finding]:
    here = episode.first_seen()
    world = state.size()
    own = _norms(state, episode.first_step)
    ever = _ever(state)
    goes_on = bool(live(state).any())
    newest = state.saves.back() or state.saves.resumed
    found = []
    for origin in origins(here, own, world):
        step = max(1, episode.first_step - origin.steps_back)
        evidence = [
            *lines.places(origin, here),
            *lines.finite(origin, here, own),
            *lines.consequences(origin, here),
            *(lines.unkept(origin, here, step, newest, _before(state, step)) if goes_on else ()),
            *lines.unlooked(origin, here),
            *lines.left_out(origin, {rank: large_every(state, rank) for rank in origin.unseen}),
            *lines.turns(origin, ever, _norms(state, step - 1) if step > 1 else ever),
            *(lines.scaled(episode) if by_scaler else ()),
            *lines.duration(origin, episode, state.numerics.complete),
        ]
        found.append(
            Finding(
                kind=origin.kind,
                severity="critical",
                ranks=origin.ranks,
                victims=sorted(episode.ranks() - set(origin.ranks)),
                step=step,
                since_s=max(0.0, now_s - episode.heard_s),
                headline=headline(origin, step),
                evidence=evidence,
                next=next_step(origin, step),
                where=_where(origin),
            )
        )
    return found


def _where(origin: Origin) -> dict[str, str | int]:
    sign = first(origin)
    where: dict[str, str | int] = {}
    if sign.name and sign.stage == Stage.FORWARD:
        where["module"] = sign.name
    elif sign.name and sign.stage not in (Stage.INPUT, Stage.LOSS):
        where["parameter"] = sign.name
    if sign.microbatch and origin.ranks:
        where["microbatch"] = sign.microbatch
    return where


def _ever(state: RunState) -> dict[int, float]:
    """The ranks that have ever told the norm of their own gradient, with the newest one."""
    columns = state.numerics.columns
    told = np.flatnonzero(columns.norm_step[: state.size()] > 0)
    return dict(zip(told.tolist(), columns.norm[told].tolist(), strict=True))


def _norms(state: RunState, step: int) -> dict[int, float]:
    """The ranks' own gradient norms of ``step``, where told; NaN where not finite."""
    codes = state.numerics.columns.norms_at(step)
    if codes is None:
        return {}
    codes = codes[: state.size()]
    told = np.flatnonzero(codes != UNKNOWN)
    return dict(zip(told.tolist(), norms(codes[told]).tolist(), strict=True))
