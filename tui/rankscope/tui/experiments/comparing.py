"""DDP beside FSDP2: which cases there are, and what their ranks found put side by side."""

from collections.abc import Sequence
from itertools import product
from statistics import median

from rankscope.protocol.exits import UserError
from rankscope.protocol.experiments import Case, Measured
from rankscope.protocol.experimentshapes import CompareRow


def cases(
    *,
    layers: Sequence[int],
    precision: Sequence[str],
    recompute: Sequence[str],
    reshard: Sequence[bool],
    dim: int,
    heads: int,
    seq_len: int,
    batch_size: int,
    most: int,
) -> list[Case]:
    """Of each setting DDP first, then FSDP2 as often as it has ways of its own."""
    found = []
    for depth, computes, recomputes in product(layers, precision, recompute):
        for trainer, keeps in [("ddp", True), *(("fsdp2", one) for one in reshard)]:
            found.append(
                Case(
                    trainer=trainer,  # type: ignore[arg-type]
                    layers=depth,
                    dim=dim,
                    heads=heads,
                    seq_len=seq_len,
                    batch_size=batch_size,
                    precision=computes,  # type: ignore[arg-type]
                    recompute=recomputes,  # type: ignore[arg-type]
                    reshard_after_forward=keeps,
                )
            )
    if len(found) > most:
        raise UserError(f"these are {len(found)} trainings; at most {most} are done at once")
    return found


def rows(asked: Sequence[Case], found: Sequence[Sequence[Measured]]) -> list[CompareRow]:
    """A row a case; ``found`` holds what each rank found, case by case."""
    made: list[CompareRow] = []
    beside: Sequence[Measured] = ()
    for case, measured in zip(asked, found, strict=True):
        if case.trainer == "ddp":
            beside = measured
        made.append(_row(case, measured, beside))
    return made


def _row(case: Case, found: Sequence[Measured], ddp: Sequence[Measured]) -> CompareRow:
    first = found[0]
    known = [rank.state for rank in found if rank.state is not None]
    states = [state.table for state in known]
    peaks = [rank.peak_bytes for rank in found if rank.peak_bytes is not None]
    times = slowest(found)
    loss = first.losses[-1] if first.losses else None
    same = None
    difference = None
    if ddp and ddp[0].losses and loss is not None:
        same = [one.batches_crc32 for one in found] == [one.batches_crc32 for one in ddp]
        reference = ddp[0].losses[-1]
        difference = abs(loss - reference) / abs(reference) if reference else None
    predicted = first.predicted
    return CompareRow(
        trainer=case.trainer,
        layers=case.layers,
        dim=case.dim,
        precision=case.precision,
        recompute=case.recompute,
        reshard_after_forward=case.reshard_after_forward if case.trainer == "fsdp2" else None,
        parameters=first.parameters,
        refused=first.refused,
        placements=first.placements,
        factors=list(predicted.factors) if predicted else [],
        state_bytes=max(states, default=None),
        state_bytes_by_rank=states,
        predicted_state_bytes=predicted.state if predicted else None,
        counter_bytes=max((state.counters for state in known), default=None),
        peak_bytes=max(peaks, default=None),
        peak_bytes_by_rank=peaks,
        predicted_peak_bytes=predicted.peak if predicted else None,
        activation_bytes=predicted.activation if predicted else None,
        gather_bytes=predicted.gather if predicted else None,
        step_s=median(times) if times else None,
        step_s_low=min(times, default=None),
        step_s_high=max(times, default=None),
        losses=first.losses,
        final_loss=loss,
        relative_difference=None if case.trainer == "ddp" else difference,
        same_batches=None if case.trainer == "ddp" else same,
        sent_bytes=predicted.sent if predicted else None,
        counted_sent_bytes=counted(first),
    )


def slowest(found: Sequence[Measured]) -> list[float]:
    """Of each timed update the time of the rank that took longest."""
    return [max(times) for times in zip(*(rank.step_s for rank in found), strict=False)]


def counted(found: Measured) -> float | None:
    return found.sent.sent if found.sent is not None and not found.sent.note else None
