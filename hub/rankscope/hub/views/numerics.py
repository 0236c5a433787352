"""The view ``numerics``: gradients before reduction over time, and what was not finite."""

import numpy as np

from rankscope.hub.covered import large_every, not_covered
from rankscope.hub.inquiries import PARAMETER_NORMS
from rankscope.hub.state import RunState
from rankscope.hub.state.numerics.episodes import Episode
from rankscope.hub.state.numerics.logs import decoded, logs
from rankscope.hub.state.numerics.outliers import distances
from rankscope.hub.state.numerics.parameters import StepNorms
from rankscope.hub.views.knowledge import Knowledge, aged, asked_rank, or_none, run_step
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

KINDS = frozenset(
    {"gradient-outlier", "replica-divergence", "silent-skip", "duplicate-data", "duplicate-seed"}
)
"""Findings of this field, beside those that begin with ``nonfinite-``."""

MAX_ROWS = 256
"""Ranks told of: those in trouble, and those farthest from the others."""

MAX_SIGNS = 64
SHOWN_STEPS = 60


def numerics(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.Numerics:
    """All ranks, or the worst of a large world; with ``rank`` also that rank's parameters."""
    state = know.state
    rank = asked_rank(know, request)
    findings = [finding for finding in aged(know, now_s) if is_numeric(finding)]
    part = state.numerics
    steps = sorted(step for step in part.columns.steps.numbers if step >= 0)[-SHOWN_STEPS:]
    far = _distances(state)
    chosen = _chosen(state, findings, far, rank)
    told = None
    if rank is not None:
        state.inquiries.want(rank, PARAMETER_NORMS, now=True)
        told = part.parameters.newest(rank)
    checked = part.replicas.checked_step
    signs = _signs(part.episodes.current or part.episodes.scaled)
    return shapes.Numerics(
        run=state.run,
        step=run_step(state),
        steps=steps,
        ranks=[_row(state, one, steps, far) for one in chosen],
        left_out=max(0, state.size() - len(chosen)),
        signs=signs,
        findings=findings,
        replicas_checked_step=checked,
        replicas_equal=None if checked is None else not part.replicas.divergences,
        parameters=[] if told is None else _parameters(told, _first_seen(findings, signs, rank)),
        parameters_step=told.step if told is not None else None,
    )


def is_numeric(finding: shapes.Finding) -> bool:
    """Whether the finding is of this field."""
    return finding.kind.startswith("nonfinite-") or finding.kind in KINDS


def _distances(state: RunState) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """At the newest step that was judged, shape (size,); NaN where not known."""
    part = state.numerics
    size = state.size()
    codes = part.columns.norms_at(part.judged)
    if codes is None:
        return np.full(size, np.nan, dtype=np.float32)
    return distances(logs(codes), part.past)[:size]


def _chosen(
    state: RunState,
    findings: list[shapes.Finding],
    far: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]",
    asked: int | None,
) -> list[int]:
    size = state.size()
    if size <= MAX_ROWS:
        return list(range(size))
    columns = state.numerics.columns
    trouble = np.nan_to_num(np.abs(far), nan=0.0)
    trouble[columns.bad_steps[:size] > 0] += 1e3
    for finding in findings:
        trouble[[rank for rank in finding.ranks if rank < size]] += 1e6
    if asked is not None:
        trouble[asked] += 1e9
    worst = np.argsort(-trouble, kind="stable")[:MAX_ROWS]
    return sorted(worst.tolist())


def _row(
    state: RunState,
    rank: int,
    steps: list[int],
    far: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]",
) -> shapes.NumericsRow:
    columns = state.numerics.columns
    slots = [step % len(columns.steps.numbers) for step in steps]
    codes = columns.norms[rank, slots].tolist() if slots else []
    ranks = state.ranks
    return shapes.NumericsRow(
        rank=rank,
        step=columns.norm_step.item(rank),
        local_norm=columns.norm.item(rank) if columns.norm_step[rank] else None,
        distance=or_none(far.item(rank)),
        norms=[decoded(code) for code in codes],
        loss=ranks.loss.item(rank) if ranks.loss_step[rank] else None,
        loss_scale=or_none(columns.loss_scale.item(rank)),
        skipped=columns.skipped.item(rank),
        signs=columns.bad_steps.item(rank),
        not_covered=not_covered(state, rank),
        large_every=large_every(state, rank),
    )


def _signs(episode: Episode | None) -> list[shapes.SignRow]:
    """The first ones of the episode, in the order of steps, microbatches and stages."""
    if episode is None:
        return []
    found = [
        shapes.SignRow(
            rank=rank,
            stage=sign.stage.name.lower(),
            step=step,
            microbatch=sign.microbatch,
            name=sign.name,
            value=sign.value,
            count=sign.count,
            others=sign.others,
            note=sign.note,
        )
        for step, here in episode.steps.items()
        for rank, seen in here.items()
        for sign in seen.signs
    ]
    order = {stage.name.lower(): int(stage) for stage in m.Stage}
    late = (m.Stage.REDUCED, m.Stage.OPTIMIZER, m.Stage.UPDATED)

    def place(row: shapes.SignRow) -> tuple[int, bool, int, int, int]:
        stage = order[row.stage]
        return row.step, stage in late, row.microbatch, stage, row.rank

    return sorted(found, key=place)[:MAX_SIGNS]


def _first_seen(
    findings: list[shapes.Finding], signs: list[shapes.SignRow], rank: int | None
) -> list[str]:
    """The parameters of ``rank`` in which something was not finite first: those that the verdict
    blames, then in the order in which it was seen."""
    blamed = [one.where.get("parameter", "") for one in findings if rank in one.ranks]
    return [str(name) for name in blamed if name] + [s.name for s in signs if s.rank == rank]


def _parameters(told: StepNorms, first: list[str]) -> list[shapes.ParameterRow]:
    """Those of ``first`` in their order, then what else is not finite, then the largest."""
    order = {name: at for at, name in reversed(list(enumerate(first)))}

    def trouble(norm: m.ParameterNorm) -> tuple[bool, int, float]:
        value = norm.local_norm
        size = -value if value is not None and value == value else 0.0
        return not norm.value, order.get(norm.name, len(first)), size

    return [
        shapes.ParameterRow(name=one.name, local_norm=one.local_norm, value=one.value)
        for one in sorted(told.norms, key=trouble)
    ]
