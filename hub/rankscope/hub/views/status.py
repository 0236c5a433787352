"""The view ``status``: the whole run, rank by rank."""

import numpy as np

from rankscope.hub import commands
from rankscope.hub.diagnose import gravest
from rankscope.hub.parity import parity_line
from rankscope.hub.rows import rank_rows
from rankscope.hub.runstate import as_of_s, exit_code, run_state
from rankscope.hub.stall import stalled_s
from rankscope.hub.state.columns import Integers
from rankscope.hub.views.checkpoints import last, resumed
from rankscope.hub.views.ending import ending
from rankscope.hub.views.knowledge import (
    Knowledge,
    aged,
    completed,
    grad_norm,
    overhead_s,
    run_step,
)
from rankscope.hub.views.stopped import stopped
from rankscope.protocol import messages as m
from rankscope.protocol import shapes


def status(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.Status:
    """The whole run; with ``since`` > 0 only the rank rows that changed after that version.

    With the argument ``heard`` those that changed by nothing but that the rank spoke are left out.
    """
    state = know.state
    since = request.since
    wanted = None
    heard: Integers = np.zeros(0, dtype=np.int64)
    news = know.told.news(state, now_s) > since if request.args.get("heard") else None
    if since > 0:
        changed = state.ranks.changed[: state.size()] > since
        if news is not None:
            heard = np.flatnonzero(changed & ~news)
            changed &= news
        wanted = np.flatnonzero(changed).tolist()
    word = run_state(state, now_s)
    now_s = as_of_s(state, word, now_s)
    heard_s = np.maximum(0.0, now_s - state.ranks.heard_s[heard])
    findings = aged(know, now_s)
    step = run_step(state)
    return shapes.Status(
        run=state.run,
        attempt=state.attempt,
        world_size=state.world_size or state.size(),
        state=word,
        step=step,
        verdict=gravest(findings, stands=word == "stalled"),
        findings=findings,
        ranks=rank_rows(state, now_s, wanted, grad_norm(state, completed(state, step))),
        last_checkpoint=last(state),
        dropped=state.dropped(),
        overhead_s_per_step=overhead_s(state),
        name=state.name,
        stalled_s=stalled_s(state, now_s) if word == "stalled" else None,
        exit_code=exit_code(state),
        full=since <= 0,
        control=commands.note(state, know.asked, know.pending, now_s),
        parity=parity_line(state),
        stopped=stopped(know, word),
        ending=ending(state, word),
        heard=heard.tolist(),
        heard_ms=np.nan_to_num(heard_s * 1000.0).astype(np.int64).tolist(),
        resumed=resumed(state),
    )
