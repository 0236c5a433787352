"""Ranks that have trained for a while and then hang, and the one finding that must come of it."""

from rankscope.protocol.shapes import Finding
from support.collectives import Job
from support.world import World


def training(ranks: int = 4, steps: int = 12, **groups: tuple[int, ...]) -> Job:
    """Ranks that have trained for a while."""
    return Job(World(ranks=ranks), {key[1:]: value for key, value in groups.items()}).steps(steps)


def told(job: Job, *ranks: int) -> Job:
    """These ranks tell what they did and where they are."""
    for rank in ranks:
        job.operations(rank).stack(rank)
    return job


def only(job: Job) -> Finding:
    findings = job.world.findings()
    assert len(findings) == 1, [(f.kind, f.headline) for f in findings]
    return findings[0]
