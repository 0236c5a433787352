"""``silent-skip``: updates that were not made, on some ranks only, or on all for long."""

import numpy as np

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.numerics import Skip
from rankscope.protocol.shapes import Finding

LONG_STEPS = 20
"""Steps in a row without an update that nobody may mean."""


def silent_skip(state: RunState, now_s: float) -> list[Finding]:
    """Ranks that skipped an update which others made; else a run that makes none any more."""
    skips = state.numerics.skips
    if skips:
        return [_alone(state, skip, now_s) for skip in skips[:4]]
    return _all(state, now_s)


def _alone(state: RunState, skip: Skip, now_s: float) -> Finding:
    ranks = [rank for rank in skip.ranks if rank < state.size()]
    updated = sorted(set(np.flatnonzero(live(state)).tolist()) - set(ranks))
    others = f"{skip.others} other{'' if skip.others == 1 else 's'}"
    who = ranks_text(updated) if len(updated) == skip.others and updated else others
    evidence = [f"step {skip.step}: {who} updated, {ranks_text(ranks)} did not"]
    if skip.times > 1:
        evidence.append(f"so in {skip.times} steps up to step {skip.last_step}")
    apart = [one.step for one in state.numerics.replicas.divergences.values()]
    if apart:
        evidence.append(f"the parameters of replicas differ since step {min(apart)}")
    return Finding(
        kind="silent-skip",
        severity="critical",
        ranks=ranks,
        victims=[],
        step=skip.step,
        since_s=max(0.0, now_s - skip.heard_s),
        headline=f"{ranks_text(ranks)} made no update in step {skip.step}, though {who} did: "
        "their parameters part",
        evidence=evidence,
        next="look at the condition around optimizer.step(): it must be the same on all ranks",
    )


def _all(state: RunState, now_s: float) -> list[Finding]:
    """Nobody updates any more, and neither NaN nor a scaler explains it."""
    numerics = state.numerics
    columns = numerics.columns
    size = state.size()
    among = np.flatnonzero(live(state) & columns.ever_updated[:size])
    if not among.size or numerics.episodes.current is not None:
        return []
    idle = int(columns.idle[among].min())
    if idle < LONG_STEPS or not np.isnan(columns.loss_scale[among]).all():
        return []
    step = int(state.ranks.recorded[among].min()) - idle + 1
    return [
        Finding(
            kind="silent-skip",
            severity="warning",
            ranks=[],
            victims=among.tolist(),
            step=step,
            since_s=max(0.0, idle * float(np.nanmax(state.ranks.step_s[among], initial=0.0))),
            headline=f"no rank has updated its parameters since step {step}",
            evidence=[f"{idle} steps in a row without an update, on every rank"],
            next="look at the condition around optimizer.step()",
        )
    ]
