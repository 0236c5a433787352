"""The sentinel's messages, built from what is known. Pure: times and numbers are handed in."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel.ending import Ending
from rankscope.protocol import limits
from rankscope.protocol.messages import (
    GpuSample,
    NodeHello,
    NodeReport,
    ProcessEnded,
    ProcessSample,
)


@dataclass(frozen=True)
class Identity:
    """Who this sentinel is: the same in all its messages."""

    run: str
    node: str
    """Host and a random part: a sentinel that follows a killed one counts from 1 again."""
    host: str
    pid: int


@dataclass(frozen=True)
class Death:
    """One rank's end, kept so that it can be told again to a hub that may not have heard it."""

    registration: Registration
    ending: Ending
    oom_killed: bool
    t_s: float
    finished: bool = False
    """Its agent had ended in order."""


def node_hello(
    identity: Identity,
    seq: int,
    now: float,
    *,
    gpu_note: str,
    stack_note: str,
    facts: dict[str, str],
) -> NodeHello:
    return NodeHello(
        node=identity.node,
        seq=seq,
        t_s=now,
        run=identity.run,
        host=identity.host,
        pid=identity.pid,
        gpu_note=gpu_note[: limits.MAX_TEXT_CHARS],
        stack_note=stack_note[: limits.MAX_TEXT_CHARS],
        facts=facts,
    )


def process_ended(identity: Identity, seq: int, now: float, death: Death) -> ProcessEnded:
    return ProcessEnded(
        node=identity.node,
        seq=seq,
        t_s=now,
        attempt=death.registration.attempt,
        rank=death.registration.rank,
        pid=death.registration.pid,
        exit_code=death.ending.exit_code,
        signal=death.ending.signal,
        oom_killed=death.oom_killed,
        event_t_s=death.t_s,
        how=death.ending.how,
        finished=death.finished,
    )


def node_report(
    identity: Identity,
    seq: int,
    now: float,
    *,
    processes: Sequence[ProcessSample],
    gpus: Sequence[GpuSample],
    load_1min: float | None,
    memory_available_bytes: int | None,
    memory_limit_bytes: int | None,
    oom_kills: int | None,
) -> NodeReport:
    return NodeReport(
        node=identity.node,
        seq=seq,
        t_s=now,
        processes=select(processes),
        gpus=tuple(gpus[: limits.MAX_GPUS_PER_NODE]),
        load_1min=load_1min,
        memory_available_bytes=memory_available_bytes,
        memory_limit_bytes=memory_limit_bytes,
        oom_kills=oom_kills,
    )


def select(processes: Sequence[ProcessSample]) -> tuple[ProcessSample, ...]:
    """The processes worth a report: all that live, and the ended ones of the newest attempt."""
    newest = max((p.attempt for p in processes), default=0)
    live = [p for p in processes if p.state != "ended"]
    ended = [p for p in processes if p.state == "ended" and p.attempt == newest]
    return tuple((live + ended)[: limits.MAX_PROCESSES_PER_NODE])


def first_cause_first(endings: Sequence[tuple[int, Ending]]) -> list[int]:
    """The order in which deaths that were seen in one glance are told, as their indices.

    Within one glance (a millisecond or so, longer on a machine that is out of breath) the kernel
    keeps no order. A launcher answers the first death with SIGTERM to all others, so those come
    last; otherwise the order in which the processes were registered stays.
    """
    sigterm = 15
    return [i for i, e in sorted(endings, key=lambda item: item[1].signal == sigterm)]
