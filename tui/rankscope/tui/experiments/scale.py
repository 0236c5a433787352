"""One scaling experiment from its jobs to what is shown."""

from collections.abc import Mapping, Sequence

from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.experiments import Job, Measured
from rankscope.protocol.experimentshapes import Scaling
from rankscope.tui.experiments import cores, scaling
from rankscope.tui.experiments.running import measure, progress


def scale(jobs: Mapping[int, Job], mode: str, *, json: bool) -> Scaling:
    """Run each job on so many ranks, one after the other.

    A number of ranks that fails is told in its row. Raises :class:`UserError` when none is left, or
    the job is refused.
    """
    found: dict[int, list[Measured]] = {}
    failed: dict[int, str] = {}
    for ranks, job in jobs.items():
        try:
            (found[ranks],) = measure(job, ranks, progress(ranks, 1, json))
        except UserError as error:
            if error.exit_code == Exit.USAGE:
                raise
            failed[ranks] = str(error)
    if not found:
        raise UserError(next(iter(failed.values())), Exit.PROBLEM)
    return scaled(jobs, mode, found, failed, cores.usable_cores())


def planned(jobs: Mapping[int, Job], trainer: str) -> str:
    """What is about to run, for somebody who did not say on how many ranks."""
    counts = [str(ranks) for ranks in jobs]
    told = " and then ".join(filter(None, (", ".join(counts[:-1]), counts[-1])))
    updates = sum(job.updates for job in jobs.values())
    return (
        f"trains with {trainer} on {told} rank{'s' * (counts != ['1'])}, {updates} updates in all, "
        "which may take a minute or more; other numbers: --ranks 1,2,4"
    )


def scaled(
    jobs: Mapping[int, Job],
    mode: str,
    found: Mapping[int, Sequence[Measured]],
    failed: Mapping[int, str],
    usable: int,
) -> Scaling:
    """What the ranks found, ``usable`` cores being there."""
    batches = {ranks: job.cases[0].batch_size for ranks, job in jobs.items()}
    rows = scaling.rows(batches, found, failed, usable)
    first = next(iter(found.values()))[0]
    job = next(iter(jobs.values()))
    notes = []
    if not any(row.ranks == 1 and row.update_s is not None for row in rows):
        notes.append("one rank was not measured, so there is no speed-up: add 1 to --ranks")
    over = [row.ranks for row in rows if row.oversubscribed]
    if over:
        notes.append(f"* {cores.warn(max(over), usable, first.device)}")
    trainer = job.cases[0].trainer
    if trainer == "fsdp2" and first.backend.endswith("gloo"):
        notes.append(
            "gloo reduces and scatters by an all-reduce, and so sends more than a ring has to"
        )
    uncounted = [
        ranks[0].sent.note for ranks in found.values() if ranks[0].sent and ranks[0].sent.note
    ]
    notes += [f"volume not counted: {note}" for note in dict.fromkeys(uncounted)]
    return Scaling(
        mode=mode,
        trainer=trainer,
        cores=usable,
        device=first.device,
        backend=first.backend,
        parameters=first.parameters,
        timed_updates=job.updates - job.untimed,
        seq_len=job.cases[0].seq_len,
        rows=rows,
        notes=notes,
    )
