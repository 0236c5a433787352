"""``rank-dead``: a rank's process ended otherwise than in order, before all others;
``run-interrupted``: the whole run was asked to end."""

import signal as signals

import numpy as np

from rankscope.hub.diagnose import endings
from rankscope.hub.diagnose.text import (
    at_text,
    ended_text,
    how_text,
    last_heard,
    phase_of,
    ranks_text,
    signal_name,
    step_in_work,
)
from rankscope.hub.outliving import launcher_how, was_killed
from rankscope.hub.state import RunState
from rankscope.hub.state.nodes import LateEnd
from rankscope.hub.state.ranks import NO_GOODBYE
from rankscope.protocol.shapes import Finding

MAX_EVIDENCE = 6

INTERRUPTED = "run-interrupted"
"""Of a run that was asked to end as a whole: nobody died of himself."""


def rank_dead(state: RunState, now_s: float) -> list[Finding]:
    """The first to die and why; for a run that was interrupted as a whole, that."""
    found = endings.cause(state, now_s)
    if found is None and not state.ranks.heard().any():
        return _before_any_rank(state, now_s)
    if found is None or found.kind not in ("death", "interrupt"):
        return []
    if found.kind == "interrupt":
        return [_interrupted(state, found, now_s)]
    first = found.ranks[0]
    oom = any(bool(state.ranks.oom_killed[rank]) for rank in found.ranks)
    return [
        Finding(
            kind="rank-dead",
            severity="critical",
            ranks=found.ranks,
            victims=found.victims,
            step=step_in_work(state, first),
            since_s=now_s - found.at_s,
            headline=f"{ranks_text(found.ranks)} died: {_end_of(state, first)}",
            evidence=[_witness(state, rank) for rank in found.ranks[:MAX_EVIDENCE]]
            + _not_for_memory(state, first)
            + _aftermath(state, found.victims)
            + _stopped_before(state, found),
            next=_next(state, first, oom),
            where={"phase": phase_of(state, first)},
        )
    ]


def _end_of(state: RunState, rank: int) -> str:
    """How it ended, and where: by its own last words, or where it was heard last."""
    how = how_ended(state, rank)
    if rank not in state.words.exceptions and state.ranks.goodbye[rank] == NO_GOODBYE:
        return f"{how}{last_heard(state, rank)}"
    return f"{how}{',' if ' ' in how else ''} {at_text(state, rank)}"


def late_finding(end: LateEnd, now_s: float) -> Finding:
    """A death of an earlier attempt that was reported when the next one had begun."""
    how = how_text(end.signal or 0, end.exit_code, end.oom_killed)
    return Finding(
        kind="rank-dead",
        severity="critical",
        ranks=[end.rank],
        victims=[],
        step=None,
        since_s=now_s - end.at_s,
        headline=f"rank {end.rank} of attempt {end.attempt} had died: {how}",
        evidence=[f"reported by the sentinel on {end.host} after attempt {end.attempt} was over"],
        next="nothing to do for this attempt; see the rank's output",
    )


def how_ended(state: RunState, rank: int) -> str:
    text = ended_text(state, rank)
    if not text:
        raised = state.words.exceptions.get(rank)
        return "nobody saw how" if raised is None else raised.type
    if text == "exit 0":
        return "exit 0 before its training was over"
    if text == "vanished":
        return "its process vanished"
    return text.replace("(OOM)", "(OOM kill)")


def _witness(state: RunState, rank: int) -> str:
    ranks = state.ranks
    number = ranks.signal.item(rank)
    text = ended_text(state, rank)
    how = f"signal {number} ({signal_name(number)})" if number else text
    pid = ranks.pid.item(rank)
    who = f"rank {rank}: pid {pid}" if pid >= 0 else f"rank {rank}: its process"
    source = state.words.how_ended.get(rank, "its sentinel")
    if not text and rank in state.words.exceptions:
        return f"rank {rank} raised {state.words.exceptions[rank].type}; its process has not ended"
    if text == "vanished":
        return f"{who} is gone, and {source} did not see how it ended"
    oom = "; the kernel killed it for memory" if ranks.oom_killed[rank] else ""
    return f"{who} ended by {how}, seen by {source}{oom}"


def _not_for_memory(state: RunState, rank: int) -> list[str]:
    """Of a SIGKILL that is not known to be the kernel's, for want of memory: how that is known."""
    ranks = state.ranks
    if ranks.oom_killed[rank] or ranks.signal.item(rank) != endings.SIGKILL:
        return []
    if _counts_oom_kills(state, rank):
        return ["not for memory: the kernel's count of OOM kills did not rise"]
    return ["whether the kernel killed it for memory cannot be read there"]


def _counts_oom_kills(state: RunState, rank: int) -> bool:
    """Whether the rank's node counts what the kernel kills for want of memory (its cgroup's
    ``memory.events``): only then does silence mean that it has killed nothing."""
    sentinel = state.nodes.by_host.get(state.host(rank))
    return sentinel is not None and sentinel.oom_kills is not None


def _aftermath(state: RunState, victims: list[int]) -> list[str]:
    """What became of the others, the same fates together."""
    ranks = state.ranks
    fates: dict[str, list[int]] = {}
    ways: dict[tuple[int, int, bool], list[int]] = {}
    ended = zip(
        victims,
        np.isnan(ranks.ended_s[victims]).tolist(),
        ranks.signal[victims].tolist(),
        ranks.exit_code[victims].tolist(),
        ranks.oom_killed[victims].tolist(),
        strict=True,
    )
    for rank, lives, number, code, oom in ended:
        exception = state.words.exceptions.get(rank)
        if exception is not None:
            fates.setdefault(f"raised {exception.type}", []).append(rank)
        elif not lives:
            ways.setdefault((number, code, oom), []).append(rank)
    for same in ways.values():
        fates[f"ended: {ended_text(state, same[0])}"] = same
    return [f"{ranks_text(same)} then {fate}" for fate, same in list(fates.items())[:3]]


def _stopped_before(state: RunState, found: endings.Cause) -> list[str]:
    """Of those who were stopped by then, what became of them: it was none of the first death."""
    stopped = endings.stopped_before(state, found.at_s)
    stopped[found.ranks] = False
    there = np.isnan(state.ranks.ended_s)
    fates = ((stopped & there, ""), (stopped & ~there, ", and then ended: SIGKILL"))
    return [
        f"{ranks_text(np.flatnonzero(those).tolist())} had been stopped before{fate}"
        for those, fate in fates
        if those.any()
    ]


def _next(state: RunState, rank: int, oom: bool) -> str:
    if oom:
        return "free host memory: fewer loader workers, less caching, or a larger memory limit"
    number = state.ranks.signal.item(rank)
    if number == endings.SIGKILL:
        on = f"on {state.host(rank) or 'its node'}"
        if _counts_oom_kills(state, rank):
            return f"somebody sent it: read its launcher's and scheduler's log, ask who works {on}"
        return f"see whether it was for memory: dmesg | grep -i kill ({on})"
    if number in (signals.SIGSEGV, signals.SIGBUS, signals.SIGILL, signals.SIGFPE, signals.SIGABRT):
        return f"run again with PYTHONFAULTHANDLER=1 and read rank {rank}'s stderr"
    return f"read the end of rank {rank}'s output"


def signals_that_ended(state: RunState, ranks: list[int]) -> set[str]:
    """The names of the signals by which these were ended."""
    raised = state.words.exceptions
    names = set()
    for rank in ranks:
        number, code = state.ranks.signal.item(rank), state.ranks.exit_code.item(rank)
        if number:
            names.add(signal_name(number))
        elif rank in raised and raised[rank].type in endings.ASKED_EXCEPTIONS:
            names.add("SIGINT" if raised[rank].type == "KeyboardInterrupt" else "SIGTERM")
        elif code in endings.ASKED_EXITS:
            names.add(signal_name(code - 128))
    return names


def _interrupted(state: RunState, found: endings.Cause, now_s: float) -> Finding:
    names = signals_that_ended(state, found.victims)
    # A launcher that got Ctrl-C ends its ranks with SIGTERM: what it got is what ended the run.
    told = launchers_end(state) or names
    complete = state.complete_step()
    return Finding(
        kind=INTERRUPTED,
        severity="warning",
        ranks=[],
        victims=[],  # they were asked, too: nobody holds them up
        step=complete + 1,
        since_s=now_s - found.at_s,
        headline=f"run was ended by {' and '.join(sorted(told)) or 'a signal'} "
        + (f"after step {complete}" if complete else "before the end of step 1"),
        evidence=[_witness(state, rank) for rank in found.victims if ended_text(state, rank)][
            :MAX_EVIDENCE
        ],
        next=_next_after(names | launchers_end(state)),
    )


def _before_any_rank(state: RunState, now_s: float) -> list[Finding]:
    """Of a run that was asked to end while it started: that, and not that nothing was watched."""
    asked = endings.asked_of_run(state)
    if state.run_end_s is None:
        return []
    if asked is None:
        return _killed_before_any_rank(state, now_s) if was_killed(state) else []
    return [
        Finding(
            kind=INTERRUPTED,
            severity="warning",
            ranks=[],
            victims=[],
            step=None,
            since_s=now_s - state.run_end_s,
            headline=f"run was ended by {signal_name(asked)} before a rank called attach",
            evidence=["no rank had been heard of: nothing is known of what it did until then"],
            next=_next_after({signal_name(asked)}),
        )
    ]


def _killed_before_any_rank(state: RunState, now_s: float) -> list[Finding]:
    """Of a command that died of a signal which asks for nothing: that is no end of its own."""
    how = launcher_how(state)
    return [
        Finding(
            kind="launcher-died",
            severity="critical",
            ranks=[],
            victims=[],
            step=None,
            since_s=now_s - (state.run_end_s or now_s),
            headline=f"command {how} before a rank called attach",
            evidence=["no rank had been heard of: nothing is known of what it did until then"],
            next="see whether processes of it are left (ps), and whether the kernel killed it for "
            "memory: dmesg | grep -i kill",
        )
    ]


def launchers_end(state: RunState) -> set[str]:
    """The signal by which the launcher's command was asked to end, where it was."""
    asked = endings.asked_of_run(state)
    return set() if asked is None else {signal_name(asked)}


def _next_after(names: set[str]) -> str:
    if "SIGHUP" in names:
        return "its terminal was closed: start it in tmux or with nohup"
    if "SIGINT" in names:
        return "it was interrupted with Ctrl-C: start it again to go on"
    return "whoever started it, or the scheduler, ended it: start it again to go on"
