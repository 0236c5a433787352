"""The view ``overview``: the run without its ranks."""

import numpy as np

from rankscope.hub import commands, possible, rates
from rankscope.hub.diagnose import gravest
from rankscope.hub.parity import parity_line
from rankscope.hub.runstate import ENDED, as_of_s, ended_s, exit_code, run_state
from rankscope.hub.stall import stalled_s
from rankscope.hub.state import RunState
from rankscope.hub.state.history import KEPT_STEPS
from rankscope.hub.views import nodes
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
from rankscope.protocol import messages as m
from rankscope.protocol import shapes


def overview(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.Overview:
    """The run without its ranks."""
    state = know.state
    step = run_step(state)
    steps = completed(state, step)
    word = run_state(state, now_s)
    now_s = as_of_s(state, word, now_s)
    first_s = state.first_heard_s
    began_s = first_s if state.began_s is None else state.began_s
    rate = rates.steps_per_s(
        state.history.completed(step, KEPT_STEPS),
        None if word in ENDED else now_s,
        state.controls.pauses,
    )
    if word == "paused" and rate is not None:
        rate = 0.0  # its mean leaves pauses out: it is what the run will do again, not what it does
    if word in ENDED and rate is not None and any(map(_stands, know.findings)):
        rate = 0.0  # it was ended while it hung
    step_s, spread_s = rates.step_s(steps)
    tokens = rates.tokens_per_step(steps)
    findings = aged(know, now_s)
    count = dict.fromkeys(shapes.SEVERITIES, 0)
    for finding in findings:
        count[finding.severity] += 1
    heard_s = state.ranks.heard_s
    newest_s = float(np.nanmax(heard_s, initial=-np.inf))
    peak = int(state.ranks.memory_peak_bytes.max(initial=-1))
    trainer, device = _kind(state)
    most = request.args.get("nodes")
    short = isinstance(most, int) and nodes.count(state) > most
    known = know.launcher if state.launched else None
    launcher_pid, launcher_host = (None, "") if known is None else known
    return shapes.Overview(
        run=state.run,
        name=state.name,
        trainer=trainer,
        device=device,
        attempt=state.attempt,
        world_size=state.world_size or state.size(),
        state=word,
        step=step,
        up_s=0.0 if began_s is None else max(0.0, now_s - began_s),
        stalled_s=stalled_s(state, now_s) if word == "stalled" else None,
        data_age_s=max(0.0, now_s - newest_s) if np.isfinite(newest_s) else None,
        steps_per_s=rate,
        step_s=step_s,
        step_spread_s=spread_s,
        tokens_per_s=None if tokens is None or rate is None else tokens * rate,
        loss=_loss(steps),
        grad_norm=grad_norm(state, steps),
        phase_s=rates.phase_means_s(steps),
        memory_peak_bytes=peak if peak >= 0 else None,
        overhead_s_per_step=overhead_s(state),
        dropped=state.dropped(),
        bad_frames=state.bad_frames,
        hub_restarts=state.restarts,
        healthy_s=know.incidents.healthy_s(first_s, state.blind, now_s),
        findings={str(severity): number for severity, number in count.items()},
        incidents=know.incidents.count,
        verdict=gravest(findings, stands=word == "stalled"),
        last_checkpoint=last(state),
        exit_code=exit_code(state),
        nodes=[] if short else nodes.nodes(state, now_s),
        nodes_in_short=nodes.nodes_in_short(state, now_s) if short else None,
        history=shapes.History(
            step=[number for number, _ in steps],
            loss=[entry.mean_loss() for _, entry in steps],
            step_s=[entry.mean_step_s() for _, entry in steps],
        ),
        hub_note=know.note,
        ended_s=ended_s(state, word),
        control=commands.note(state, know.asked, know.pending, now_s),
        parity=parity_line(state),
        possible=possible.refusals(state, know.busy(), now_s),
        launcher_pid=launcher_pid,
        launcher_host=launcher_host,
        launcher_gone=know.launcher is not None and not state.launched,
        ending=ending(state, word),
        resumed=resumed(state),
    )


def _stands(finding: shapes.Finding) -> bool:
    return finding.severity == "critical" and finding.kind in shapes.STANDS


def _loss(steps: rates.Steps) -> float | None:
    """Of the newest step whose loss has come off the device."""
    for _, entry in reversed(steps):
        loss = entry.mean_loss()
        if loss is not None:
            return loss
    return None


def _kind(state: RunState) -> tuple[str, str]:
    """Trainer and device as the lowest rank names them; the device without its number."""
    for index in state.ranks.identity[state.ranks.identity >= 0][:1].tolist():
        who = state.words.identities.values[index]
        return who.trainer, who.device.split(":")[0]
    return "", ""
