"""One comparison from its job to what is shown."""

from collections.abc import Sequence

from rankscope.protocol.exits import UserError
from rankscope.protocol.experiments import Job, Measured
from rankscope.protocol.experimentshapes import Comparison
from rankscope.tui.experiments import comparing, cores
from rankscope.tui.experiments.running import measure, progress
from rankscope.tui.words import numbers


def compare(job: Job, ranks: int, *, json: bool) -> Comparison:
    """Raises :class:`UserError` when nothing fits, or the ranks fail."""
    found = measure(job, ranks, progress(ranks, len(job.cases), json))
    made = comparison(job, ranks, found, cores.usable_cores())
    if all(row.refused for row in made.rows):
        least = min(row.peak_bytes or row.predicted_state_bytes or 0.0 for row in made.rows)
        raise UserError(
            f"nothing fits in --memory-limit {numbers.size_bytes(job.limit_bytes)}: at least "
            f"{numbers.size_bytes(round(least))} a rank are needed; raise it, or take more ranks "
            "or a smaller model"
        )
    return made


def comparison(
    job: Job, ranks: int, found: Sequence[Sequence[Measured]], usable: int
) -> Comparison:
    """What the ranks found, ``usable`` cores being there."""
    rows = comparing.rows(job.cases, found)
    first = found[0][0]
    notes = [cores.warn(ranks, usable, first.device)]
    if any(row.same_batches is False for row in rows):
        notes.append("the batches were not the same: the losses do not compare")
    uncounted = [one[0].sent.note for one in found if one[0].sent and one[0].sent.note]
    notes += [f"volume not counted: {note}" for note in dict.fromkeys(uncounted)]
    return Comparison(
        ranks=ranks,
        cores=usable,
        device=first.device,
        backend=first.backend,
        updates=job.updates,
        timed_updates=job.updates - job.untimed,
        batch_size=job.cases[0].batch_size,
        seq_len=job.cases[0].seq_len,
        memory_limit_bytes=job.limit_bytes,
        rows=rows,
        notes=[note for note in notes if note],
    )
