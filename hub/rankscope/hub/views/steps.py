"""The view ``steps``: the newest steps over time, what stands out in them, and who is late."""

import numpy as np

from rankscope.hub.oddsteps import odd_steps
from rankscope.hub.rates import Steps
from rankscope.hub.runstate import as_of_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Integers
from rankscope.hub.state.paces import Singles
from rankscope.hub.state.ranks import PHASES
from rankscope.hub.views.knowledge import Knowledge, aged, asked_rank, completed, run_step
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

MAX_ROWS = 256
LATE_STEPS = 96
WARM_UP_STEPS = 3
"""The first steps of a process compile, allocate and connect: who is late in them says nothing."""
WINDOW = 16
"""Steps over which a rank's medians are taken."""
LEAST_STEPS = 8
"""Over fewer of them nobody is called late, nor on time: single steps scatter as much."""
BEHIND_SHARE = 0.05
"""Of a step: who works less than this longer than usual is not behind."""
KINDS = frozenset({"straggler", "loader-stalled"})


def steps(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.StepsView:
    """The run's newest steps; all ranks, or those of a large world that are most behind.

    With the argument ``rank`` that rank's own steps, too.
    """
    state = know.state
    asked = asked_rank(know, request)
    as_of = as_of_s(state, run_state(state, now_s), now_s)
    step = run_step(state)
    done = completed(state, step)
    numbers = [number for number, _ in done]
    step_s = [entry.mean_step_s() for _, entry in done]
    loss = [entry.mean_loss() for _, entry in done]
    late_steps, columns = _after_warm_up(state, *state.lateness.columns(LATE_STEPS))
    rows, left_out = _rows(state, columns)
    view = shapes.StepsView(
        run=state.run,
        step=step,
        steps=numbers,
        step_s=step_s,
        loss=loss,
        phase_s=_phases(done),
        waited_s=[entry.mean_waited_s() for _, entry in done],
        anomalies=_with_beginnings(odd_steps(numbers, step_s, loss), know.findings),
        late_steps=late_steps,
        ranks=rows,
        left_out=left_out,
        findings=[one for one in aged(know, as_of) if one.kind in KINDS],
    )
    if asked is not None:
        _of_rank(state, asked, view)
    return view


def _with_beginnings(
    odd: list[shapes.StepAnomaly], findings: list[shapes.Finding]
) -> list[shapes.StepAnomaly]:
    """A loss shows a step later what began in a gradient."""
    began = [f.step for f in findings if f.kind.startswith("nonfinite") and f.step is not None]
    for one in odd:
        if one.what == "loss not finite":
            one.began_step = max((step for step in began if step <= one.step), default=None)
    return odd


def _phases(done: Steps) -> dict[str, list[float]]:
    """Mean seconds over the ranks that told the step, by phase."""
    return {
        phase: [getattr(entry, f"{phase}_s") / max(1, entry.ranks) for _, entry in done]
        for phase in PHASES
    }


def _rows(state: RunState, columns: Integers) -> tuple[list[shapes.StepsRow], int]:
    known = np.flatnonzero(state.ranks.heard()[: state.size()])
    shown = known
    if len(known) > MAX_ROWS:
        late = np.nan_to_num(state.lateness.late_s[known][:, columns[-WINDOW:]]).sum(axis=1)
        # Equally late ones, such as all of a calm run, by their number.
        shown = np.sort(known[np.argsort(-late, kind="stable")[:MAX_ROWS]])
    recent = state.paces.columns(max(0, min(WINDOW, state.paces.compared - _warm_until(state))))
    work = _medians(state.paces.work_s[shown][:, recent])
    waited = _medians(state.paces.waited_s[shown][:, recent])
    excess = _medians(state.paces.excess_s[shown][:, recent])
    usual = np.median(state.paces.usual_s[recent], axis=0) if len(recent) else np.zeros(len(PHASES))
    step_s = float(np.nanmean(state.lateness.step_s[columns[-WINDOW:]])) if len(columns) else 0.0
    percent = _percent(state, shown, columns)
    rows = []
    for place, rank in enumerate(shown.tolist()):
        phase, late_s, factor = "", None, None
        if len(recent) >= LEAST_STEPS and not np.isnan(excess[place]).all():
            worst = int(np.nanargmax(excess[place]))
            late_s = max(0.0, float(excess[place, worst]))
            if late_s > BEHIND_SHARE * step_s:
                phase = PHASES[worst]
                factor = float(work[place, worst] / max(float(usual[worst]), 1e-4))
        total = float(work[place].sum())
        rows.append(
            shapes.StepsRow(
                rank=rank,
                host=state.host(rank),
                work_s=None if np.isnan(total) else total,
                waited_s=None if np.isnan(waited[place]) else float(waited[place]),
                late_s=late_s,
                phase=phase,
                factor=factor,
                late_percent=percent[place],
            )
        )
    return rows, len(known) - len(shown)


def _warm_until(state: RunState) -> int:
    """The last step in which pace says nothing yet."""
    heard = state.ranks.heard()
    return WARM_UP_STEPS + (int(state.ranks.start_step[heard].max()) if heard.any() else 0)


def _after_warm_up(
    state: RunState, steps: list[int], columns: Integers
) -> tuple[list[int], Integers]:
    """Those of ``steps`` and their ``columns`` in which pace says something."""
    first = next((at for at, step in enumerate(steps) if step > _warm_until(state)), len(steps))
    return steps[first:], columns[first:]


def _medians(values: Singles) -> Singles:
    """Medians along the second axis without what is not known; NaN where nothing is."""
    if values.shape[1] == 0:
        return np.full((values.shape[0], *values.shape[2:]), np.nan, dtype=np.float32)
    known = (~np.isnan(values)).sum(axis=1)
    ordered = np.sort(values, axis=1)  # what is not known comes last
    low = np.expand_dims(np.maximum(known - 1, 0) // 2, 1)
    high = np.expand_dims(known // 2, 1).clip(max=values.shape[1] - 1)
    both = np.take_along_axis(ordered, low, axis=1) + np.take_along_axis(ordered, high, axis=1)
    middle: Singles = (both[:, 0] / 2).astype(np.float32)
    middle[known == 0] = np.nan
    return middle


def _percent(state: RunState, shown: Integers, columns: Integers) -> list[list[int | None]]:
    """Work beyond the usual, in percent of the step, for each of ``columns``; at most 999."""
    step_s = np.maximum(state.lateness.step_s[columns], 1e-9)
    share = np.round(100 * state.lateness.late_s[shown][:, columns] / step_s)
    unknown = np.isnan(share)
    whole = np.where(unknown, -1, np.minimum(share, 999)).astype(np.int64).tolist()
    return [[None if value < 0 else value for value in row] for row in whole]


def _of_rank(state: RunState, rank: int, view: shapes.StepsView) -> None:
    """Add what is known of the newest steps of ``rank``."""
    paces = state.paces
    told = np.flatnonzero(paces.step[rank] > 0)
    order = told[np.argsort(paces.step[rank][told])]
    view.rank_steps = paces.step[rank][order].tolist()
    work = paces.work_s[rank][order]
    view.rank_phase_s = {phase: work[:, at].tolist() for at, phase in enumerate(PHASES)}
    waited = paces.waited_s[rank][order]
    view.rank_waited_s = [None if np.isnan(value) else float(value) for value in waited]
