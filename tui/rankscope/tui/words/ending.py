"""How a run that hangs is ended, and what is left of it."""

from rankscope.protocol.shapes import HANGS, Overview, Status
from rankscope.tui.words import numbers
from rankscope.tui.words.checkpoints import holds, instead, none_since
from rankscope.tui.words.marks import safe
from rankscope.tui.words.nohub import no_hub

MOST_NAMED = 16
"""So many processes are named one by one."""


def hangs(status: Status) -> bool:
    """Whether ranks wait for what will not come: no end of a step is to be expected."""
    if no_hub(status) is not None:
        return False
    verdict = status.verdict
    stuck = verdict is not None and verdict.severity == "critical" and verdict.kind in HANGS
    return status.state == "stalled" or (status.state == "running" and stuck)


def how_to_end(status: Status | None, overview: Overview | None) -> str:
    """``on node-a: kill 4711; or Ctrl-C where it was started``; empty for a run that does not hang.

    In a line of 66 cells: what is to be pasted is not torn from what it is for.
    """
    if status is None or overview is None or not hangs(status):
        return ""
    if overview.launcher_gone:
        return f"what started it was killed, so Ctrl-C reaches nothing; {_each_rank(status)}"
    if overview.launcher_pid is None:
        return "Ctrl-C where it was started, or cancel its job"
    where = f"on {safe(overview.launcher_host)}: " if overview.launcher_host else ""
    return f"{where}kill {overview.launcher_pid}; or Ctrl-C where it was started"


def _each_rank(status: Status) -> str:
    """How the processes of the ranks themselves are ended."""
    there = [row for row in status.ranks if row.pid is not None and row.phase != "ended"]
    hosts = {row.host for row in there}
    if not there or len(hosts) > 1 or len(there) > MOST_NAMED:
        return "end its ranks on each node: rankscope ranks names their processes"
    pids = " ".join(str(row.pid) for row in there)
    return f"end its ranks{f' on {safe(next(iter(hosts)))}' if any(hosts) else ''}: kill {pids}"


UNKEPT = "what it trains since step "


def unkept(status: Status) -> str:
    """How a run is ended whose parameters are not finite any more, and what it goes on from; empty
    for any other."""
    verdict = status.verdict
    if status.state != "running" or verdict is None or no_hub(status) is not None:
        return ""
    return next((text for text in verdict.evidence if text.startswith(UNKEPT)), "")


def what_comes_of_it(status: Status) -> str:
    """What ending it takes and leaves, and why no command of ours does it."""
    heed = "torchrun gives ranks that do not heed Ctrl-C 30 s"
    if status.verdict is not None and status.verdict.kind == "rank-stopped":
        heed = "a stopped rank hears neither before it goes on, or torchrun kills it after 30 s"
    return (
        f"{heed}; a stop or a save would wait for the end of a step, which does not come. "
        f"{_kept(status)}"
    )


def _kept(status: Status) -> str:
    """What ending it loses, and what it does not."""
    kept = "Kept: the verdict and its evidence"
    last = status.last_checkpoint
    if last is None:
        none = none_since(status.resumed) or "there is no checkpoint"
        return f"{kept}; {none}"
    back = max(0, status.step - last.step)
    since = f", {numbers.plural(back, 'step')} back" if back else ""
    resumed = ", which it was resumed from" if last.resumed else ""
    spoilt = f", which {holds(last.notfinite)}{instead(last)}" if last.notfinite else ""
    return f"{kept}, and checkpoint step {numbers.count(last.step)}{resumed}{since}{spoilt}"
