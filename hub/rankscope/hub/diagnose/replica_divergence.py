"""``replica-divergence``: ranks that should hold the same parameters do not.

Who is odd is told by the majority, where there is one; else (two ranks, two halves) by a rank's own
account that a parameter changed while no update was made; else it cannot be known, and is not
guessed.
"""

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.inquiries import CHECKSUMS
from rankscope.hub.state import RunState
from rankscope.hub.state.numerics.replicas import Divergence
from rankscope.protocol.messages import Phase, Stage
from rankscope.protocol.shapes import Finding

BEFORE_LOSS = (Phase.DATA, Phase.FORWARD, Phase.OTHER)
FORWARD_S = 1.0
"""A forward that takes longer than this is not waited for."""

MAX_CLASSES = 4
MAX_NAMES = 3


def replica_divergence(state: RunState, now_s: float) -> list[Finding]:
    """One finding for each set of replicas and part of the model; none for a consequence."""
    numerics = state.numerics
    explained = [skip.step for skip in numerics.skips]
    if numerics.episodes.current is not None:
        explained.append(numerics.episodes.current.first_step)
    findings = []
    firsts: dict[str, tuple[int, Divergence]] = {}
    for (replicas, part), one in sorted(numerics.replicas.divergences.items()):
        before = firsts.get(replicas)
        if before is None or one.step < before[1].step:
            firsts[replicas] = (part, one)
    for _, one in firsts.values():
        if any(step <= one.step for step in explained) or _parted_by_nan(state, one):
            continue
        waits = _may_be_explained(state, one, now_s)
        if waits or not one.names:  # whoever is asked also says soon that its forward is over
            state.inquiries.want_all((ranks[0] for ranks in one.classes[:MAX_CLASSES]), CHECKSUMS)
        if not waits:
            findings.append(_finding(state, one, now_s))
    return findings


def _parted_by_nan(state: RunState, one: Divergence) -> bool:
    """Whether what a differing rank began the next step with was not finite: that is why."""
    episode = state.numerics.episodes.current
    after = {} if episode is None else episode.steps.get(one.step + 1, {})
    return any(
        rank in after and (after[rank].has(Stage.PARAMETER) or after[rank].has(Stage.OPTIMIZER))
        for rank in _suspects(one)
    )


def _suspects(one: Divergence) -> list[int]:
    return odd(one)[0] or [rank for ranks in one.classes for rank in ranks]


def _may_be_explained(state: RunState, one: Divergence, now_s: float) -> bool:
    """Whether a rank is still in the forward behind the update that parted them: a NaN in its
    parameters, of which the difference is a consequence, shows in its loss at the latest."""
    if now_s - one.heard_s >= FORWARD_S:
        return False
    ranks = state.ranks
    return any(
        ranks.step.item(rank) <= _parted(one, rank) and ranks.phase.item(rank) in BEFORE_LOSS
        for rank in _suspects(one)
    )


def _parted(one: Divergence, rank: int) -> int:
    """The step whose update left ``rank`` with other parameters than the rest, as far as is known:
    one that changed alone, some steps before the check, was no NaN if no forward since was."""
    own, count = one.altered.get(rank), sum(map(len, one.classes))
    return own.step if own is not None and len(one.altered) < count else one.step


def odd(one: Divergence) -> tuple[list[int], str]:
    """Whom to name, and why in words; nobody where it cannot be known."""
    told = sorted(len(ranks) for ranks in one.classes)
    count = sum(told)
    everybody = {rank for ranks in one.classes for rank in ranks}
    altered = sorted(rank for rank in one.altered if rank in everybody)
    if told[-1] * 2 > count and count > 2:
        outside = sorted(rank for ranks in one.classes[1:] for rank in ranks)
        return outside, f"{told[-1]} of {count} ranks agree with each other"
    if altered and len(altered) < count:
        first = one.altered[altered[0]]
        return altered, (
            f"{first.names[0]} changed on {ranks_text(altered)} before the update of step "
            f"{first.step}, by no update; nothing did on the others"
        )
    if count == 2:
        return [], "of two ranks that differ neither can be said to be the right one"
    return [], "no set of ranks is a majority"


def _finding(state: RunState, one: Divergence, now_s: float) -> Finding:
    ranks, why = odd(one)
    everybody = sorted(rank for ranks_ in one.classes for rank in ranks_)
    own = one.altered.get(ranks[0]) if ranks else None
    step = one.step if own is None else own.step
    name = one.names[0] if one.names else ""
    if own is not None and (not name or name not in own.names):
        name = own.names[0]
    what = name or "parameters"
    if ranks:
        headline = f"{what} of {ranks_text(ranks)} differ{'s' if name else ''} from the replicas of"
        headline += f" the other ranks since step {step}"
    else:
        headline = f"{what} differ{'s' if name else ''} between the replicas of "
        headline += f"{ranks_text(everybody)} since step {one.step}"
    evidence = [_classes(one), why]
    if len(one.names) > 1:
        shown = ", ".join(one.names[:MAX_NAMES])
        more = len(one.names) - MAX_NAMES
        evidence.append(
            f"parameters that differ: {shown}" + (f" and {more} more" if more > 0 else "")
        )
    elif name:
        evidence.append("no other parameter that was compared differs")
    if one.last_step > one.step:
        evidence.append(f"they still differed at step {one.last_step}")
    return Finding(
        kind="replica-divergence",
        severity="critical",
        ranks=ranks,
        victims=[rank for rank in everybody if rank not in ranks],
        step=step,
        since_s=max(0.0, now_s - one.heard_s),
        headline=headline,
        evidence=evidence,
        next="compare the replicas, and the node's memory errors (ECC, dmesg)"
        + (f" on {state.host(ranks[0])}" if ranks and state.host(ranks[0]) else "")
        + "; a checkpoint of before that step is the last sound one",
        where={"parameter": name} if name else {},
    )


def _classes(one: Divergence) -> str:
    parties = [ranks_text(ranks) for ranks in one.classes[:MAX_CLASSES]]
    more = len(one.classes) - MAX_CLASSES
    tail = f" | {more} more" if more > 0 else ""
    return f"equal among themselves at step {one.step}: {' | '.join(parties)}{tail}"
