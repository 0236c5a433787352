"""What an operator can check: the lines under a headline, with figures."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from rankscope.hub.covered import every_text
from rankscope.hub.diagnose.nonfinite.origin import OWN, Origin
from rankscope.hub.diagnose.nonfinite.sentences import ONE, STAGES, article
from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.state.numerics.episodes import Episode, RankSigns
from rankscope.protocol.messages import Sign, Stage

MAX_CULPRITS = 4
SETTLED_STEPS = 3
"""So many steps later it is said whether it was that one."""


def places(origin: Origin, here: Mapping[int, RankSigns]) -> list[str]:
    """What the culprits saw first, one line a rank."""
    lines = []
    for rank in sorted(origin.signs)[:MAX_CULPRITS]:
        sign = origin.signs[rank]
        lines.append(f"rank {rank}: {_place(sign)}")
        beside = _beside(sign, here[rank])
        if beside:
            lines.append(beside)
    if len(origin.signs) > MAX_CULPRITS:
        lines.append(f"and {len(origin.signs) - MAX_CULPRITS} more ranks alike")
    return lines


def _place(sign: Sign) -> str:
    what = ONE.get(sign.stage, "numbers")
    of = f" of {sign.name}" if sign.name else ""
    if sign.name and sign.stage in (Stage.PARAMETER, Stage.UPDATED):
        what, of = sign.name, f" {what}"
    when = f", microbatch {sign.microbatch}" if sign.microbatch else ""
    count = f", {sign.count:,} element{'' if sign.count == 1 else 's'}" if sign.count else ""
    note = f" ({sign.note})" if sign.note else ""
    return f"{what}{of}{when}: {article(sign.value)}{count}{note}"


def _beside(sign: Sign, seen: RankSigns) -> str:
    """Other names that show the same at the same stage and microbatch."""
    same = [other for other in seen.at(sign.stage) if other.microbatch == sign.microbatch]
    names = [other.name for other in same if other.name and other.name != sign.name]
    more = sum(other.others for other in same) + max(0, len(names) - 2)
    if not names and not more:
        return ""
    shown = ", ".join(names[:2])
    rest = f"{more} more" if more else ""
    return f"after it {' and '.join(filter(None, (shown, rest)))}"


def finite(origin: Origin, here: Mapping[int, RankSigns], norms: Mapping[int, float]) -> list[str]:
    """What was looked at and was as it should be."""
    lines = []
    if origin.ranks and origin.stage in OWN:
        rank = origin.ranks[0]
        seen = here[rank]
        clean = [
            STAGES[stage]
            for stage in (Stage.INPUT, Stage.FORWARD, Stage.LOSS, Stage.GRADIENT)
            if stage != origin.stage and not seen.has(stage) and seen.looked_at(stage)
        ]
        norm = norms.get(rank, math.nan)
        if (
            origin.stage in (Stage.LOSS, Stage.CAST)
            and math.isfinite(norm)
            and STAGES[Stage.GRADIENT] not in clean
        ):
            clean.append(f"{STAGES[Stage.GRADIENT]} (norm {norm:.3g})")
        if clean:
            lines.append(f"finite on rank {rank} in that step: {', '.join(clean)}")
    culprits = set(origin.ranks)
    others = {
        rank: norm for rank, norm in norms.items() if norm < math.inf and rank not in culprits
    }
    if others:
        low, high = min(others.values()), max(others.values())
        span = f"norm {low:.3g}" if len(others) == 1 else f"norms {low:.3g} to {high:.3g}"
        who = "every rank" if not origin.ranks and not origin.unseen else ranks_text(sorted(others))
        lines.append(f"finite on {who}: own gradient before reduction, {span}")
    return lines


def consequences(origin: Origin, here: Mapping[int, RankSigns]) -> list[str]:
    """What was bad after it in the same step, and on whom."""
    alike: dict[int, list[int]] = {}
    for rank, seen in here.items():
        bad = seen.bad & ~(1 << origin.stage) if rank in origin.signs else seen.bad
        alike.setdefault(bad, []).append(rank)
    by_stage: dict[Stage, list[int]] = {}
    for bad, ranks in alike.items():
        for stage in STAGES:
            if bad >> stage & 1:
                by_stage.setdefault(stage, []).extend(ranks)
    if not by_stage:
        return []
    told = [
        f"{STAGES[stage]} on {ranks_text(sorted(by_stage[stage]))}" for stage in sorted(by_stage)
    ]
    return [f"what it spoilt in that step: {'; '.join(told)}"]


def unlooked(origin: Origin, here: Mapping[int, RankSigns]) -> list[str]:
    """Stages before the one that is blamed that nobody looked at on the culprit."""
    if not origin.ranks or origin.stage not in OWN:
        return []
    seen = here[origin.ranks[0]]
    blind = [
        STAGES[stage]
        for stage in (Stage.INPUT, Stage.FORWARD, Stage.LOSS)
        if stage < origin.stage and not seen.looked_at(stage)
    ]
    return [f"not looked at on rank {origin.ranks[0]}: {', '.join(blind)}"] if blind else []


def left_out(origin: Origin, every: Mapping[int, int]) -> list[str]:
    """Why own gradients of the ranks that leave the origin open were not all looked at, where they
    say it: ``every`` is at how many steps each of them reads its large ones."""
    alike: dict[int, list[int]] = {}
    for rank in origin.unseen:
        if every.get(rank, 1) > 1:
            alike.setdefault(every[rank], []).append(rank)
    return [
        f"{ranks_text(ranks)} {'reads its' if len(ranks) == 1 else 'read their'} large gradients "
        f"at {every_text(often)}, and left some out in that one"
        for often, ranks in sorted(alike.items())
    ]


def turns(origin: Origin, own: Mapping[int, float], before: Mapping[int, float]) -> list[str]:
    """Of a parameter that was bad before the step, where no rank's own gradient was read in the
    step before: ``own`` and ``before`` are the norms told of the two, of ranks that tell any."""
    if origin.stage != Stage.PARAMETER or before or not own:
        return []
    return [
        "large gradients take turns here and were not all read in the step before: it may have "
        "begun in one of them"
    ]


def duration(origin: Origin, episode: Episode, complete: int) -> list[str]:
    """Whether it was one step or goes on, once that can be told."""
    first = episode.first_step
    since = complete - first
    if since < SETTLED_STEPS:
        return []
    if episode.last_step == first:
        return [f"it was that one step: the {since} since show nothing of the kind"]
    span = episode.last_step - first + 1
    if episode.bad_steps >= span and complete - episode.last_step <= 1:
        return [f"every step since shows it: {span} in a row", *_sticky(origin, episode)]
    if complete - episode.last_step <= 1:
        return [f"{episode.bad_steps} of the {span} steps since show it"]
    return [
        f"steps {first} to {episode.last_step} showed it, the {complete - episode.last_step}"
        " since do not"
    ]


def _sticky(origin: Origin, episode: Episode) -> list[str]:
    """The same gradient is bad again and again, and nothing that could make it so."""
    if origin.stage != Stage.GRADIENT or not origin.ranks:
        return []
    rank = origin.ranks[0]
    seen = episode.newest.get(rank)
    name = origin.signs[rank].name
    if seen is None or episode.newest_step.get(rank, 0) <= episode.first_step:
        return []
    again = any(sign.name == name for sign in seen.at(Stage.GRADIENT))
    made = any(
        seen.has(stage) for stage in (Stage.INPUT, Stage.PARAMETER, Stage.FORWARD, Stage.LOSS)
    )
    if not again or made:
        return []
    return [
        f"it persists: the gradient of {name} is bad again in each of them while losses and "
        "parameters are finite, as if it were never cleared (zero_grad)"
    ]


def scaled(episode: Episode) -> Sequence[str]:
    return [f"the gradient scaler has skipped {episode.bad_steps} updates in a row for it"]


class Saved(Protocol):
    """A checkpoint of ``step``, and what it is known to hold that is not finite."""

    step: int
    notfinite: str


def unkept(
    origin: Origin,
    here: Mapping[int, RankSigns],
    step: int,
    newest: Saved | None,
    before: Saved | None,
) -> list[str]:
    """Of parameters that it has spoilt: what is left to do with the run, and what to go on from:
    ``before`` is the newest checkpoint of before ``step``, of all there are ``newest`` is."""
    if not any(seen.has(stage) for seen in here.values() for stage in SPOILS):
        return []
    if newest is None:
        on = "there is no checkpoint to go on from"
    elif before is not None:
        on = f"go on from checkpoint {before.step}"
    else:
        holds = "holds" if newest.notfinite else "may hold"
        on = f"checkpoint {newest.step} {holds} it, and this run has none of before step {step}"
    return [f"{UNKEPT} since step {step} cannot be kept: rankscope stop; {on}"]


SPOILS = (Stage.PARAMETER, Stage.UPDATED)
UNKEPT = "what it trains"
"""How the line begins by which a run that is spoilt is ended."""
