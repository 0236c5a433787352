"""``collective-mismatch``: a rank did another collective than the others, by their sequences."""

import math

from rankscope.hub.diagnose.hang import words
from rankscope.hub.diagnose.hang.broken import broke_s, failed_ranks
from rankscope.hub.diagnose.hang.difference import Difference, first_difference
from rankscope.hub.diagnose.hang.ownpast import by_own_past
from rankscope.hub.diagnose.hang.scene import Scene
from rankscope.hub.diagnose.hang.table import GroupRows, label, table
from rankscope.hub.diagnose.text import phase_of, ranks_text, step_in_work
from rankscope.hub.inquiries import OPERATIONS
from rankscope.hub.state import RunState
from rankscope.protocol.messages import Phase
from rankscope.protocol.shapes import Finding

MAX_GROUPS = 32


def difference(state: RunState, scene: Scene | None) -> Difference | None:
    """The first difference in a group that does not go on, or that broke down."""
    failed = failed_ranks(state)
    groups: list[GroupRows] = []
    if failed:
        groups = table(state).of_ranks(failed)
    elif scene is not None:
        seen = {wait.group.name: wait.group for wait in scene.waits}
        groups = list(seen.values())
    for group in groups[:MAX_GROUPS]:
        found = first_difference(state, group)
        if found is None and failed:
            found = by_own_past(state, group, [rank for rank in failed if rank in group])
        if found is not None and _matters(state, scene, found, failed):
            return found
    return None


def _matters(state: RunState, scene: Scene | None, found: Difference, failed: list[int]) -> bool:
    """Whether the group is at, or was broken by, what differs."""
    del state
    if failed:
        return True
    return scene is not None and any(
        wait.group.name == found.group.name and wait.seq >= found.seq for wait in scene.waits
    )


def collective_mismatch(
    state: RunState, scene: Scene | None, found: Difference | None, now_s: float
) -> list[Finding]:
    """What the difference is, in words; critical at once: it is evidence of its own."""
    if found is None:
        return []
    first = found.ranks[0]
    source = _source(state, scene, found, first)
    where: dict[str, str | int] = {"phase": phase_of(state, first)}
    if found.usual is not None:
        where["collective"] = found.usual.name
    if source:
        where["source"] = source
    failed = failed_ranks(state)
    since_s = broke_s(state, failed) if failed else found.at_s
    if not since_s and scene is not None:
        since_s = now_s - max(
            (float(scene.idle_s[rank]) for rank in found.others if scene.live[rank]), default=0.0
        )
    return [
        Finding(
            kind="collective-mismatch",
            severity="critical",
            ranks=found.ranks,
            victims=found.others,
            step=min(step_in_work(state, rank) for rank in found.ranks),
            since_s=max(0.0, now_s - since_s) if math.isfinite(since_s) else 0.0,
            headline=_headline(found, source),
            evidence=[*found.lines(state), *_aftermath(state, failed)]
            + (words.places(scene, found.ranks) if scene is not None else []),
            next=f"read {source}: what it does that the others do not"
            if source
            else f"compare what {ranks_text(found.ranks)} and the others do: rankscope stacks",
            where=where,
        )
    ]


def _source(state: RunState, scene: Scene | None, found: Difference, rank: int) -> str:
    """The user's line that called what differs; empty where that is not known."""
    called = found.source(state, rank)
    if called:
        return called
    raised = state.words.exceptions.get(rank)
    if raised is not None and raised.source:
        return raised.source
    if scene is not None and scene.live[rank] and (source := words.source_of(scene, rank)):
        return source
    if state.ranks.work_phase[rank] == Phase.BACKWARD:
        return state.stacks.backward_source  # torch called it, from where it always does
    return ""


def _headline(found: Difference, source: str) -> str:
    who = ranks_text(found.ranks)
    others = words.count_text(found.others) if found.others else "the others"
    odd, usual = found.odd, found.usual
    verb = "does" if len(found.ranks) == 1 else "do"
    if usual is None:
        what = odd.text()
    elif odd.operation != usual.operation:
        what = f"{odd.operation} where {others} do{'es' if len(found.others) == 1 else ''} "
        what += usual.operation
    elif not (odd.sizes and usual.sizes):
        what = f"another {odd.operation} than {others}"
    else:
        what = f"{odd.text()} where {others} ha{'s' if len(found.others) == 1 else 've'} "
        what += " ".join(filter(None, (usual.sizes, usual.dtype)))
    at = f": at {source}" if source else ""
    group = label(found.group.name, found.group.description)
    return f"{who} {verb} {what}, #{found.seq} of {group}{at}"


def _aftermath(state: RunState, failed: list[int]) -> list[str]:
    lines = []
    for rank in failed[:4]:
        raised = state.words.exceptions.get(rank)
        if raised is None:
            lines.append(f"rank {rank} then aborted (SIGABRT)")
        else:
            message = raised.message.strip().splitlines()
            lines.append(
                f"rank {rank} then raised {raised.type}: {message[0][:120]}"
                if message
                else f"rank {rank} then raised {raised.type}"
            )
    return lines


def want_evidence(state: RunState, scene: Scene) -> None:
    """Ask ranks that wait for what they did last, where that is not known up to where they are."""
    for wait in scene.waits[:8]:
        for rank in wait.waiting[:16]:
            window = state.operations.window(rank, wait.group.name)
            if window is None or window.end <= wait.seq:
                state.inquiries.want(rank, OPERATIONS)
