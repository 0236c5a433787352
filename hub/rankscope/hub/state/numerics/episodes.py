"""What ranks saw that is not finite, by episode: from the first sign to twenty clean steps.

Of an episode the first steps are kept in full (they say where it came from), of the rest only how
often and when. What a gradient scaler is there for (gradients too large, the update skipped) is
kept apart: it is ordinary, and must not hide what comes after it.
"""

from typing import Any

import msgspec

from rankscope.hub.state.columns import MAX_SIZE
from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage

CLEAN_STEPS = 20
"""So many steps without a sign end an episode."""

CLEAN_S = 15.0
"""And so much time: fast steps must not take a finding off the screen before it is read."""

FULL_STEPS = 3
"""The first steps of an episode, of which every rank's signs are kept."""

MAX_SIGNS = 1 << 16
"""Signs kept of one episode; beyond it only which stages were bad."""

MAX_OF_A_RANK = 24
MAX_OF_A_STAGE = 8
MAX_CHARS = 256
MAX_FOLLOWED = 256
"""Ranks whose newest signs are kept as well."""

BACKOFF_STAGES = frozenset({Stage.GRADIENT, Stage.CAST, Stage.REDUCED})
NOT_FINITE = frozenset({"nan", "inf", "-inf"})


class RankSigns(msgspec.Struct):
    """What one rank saw in one step."""

    heard_s: float
    looked: int = 0
    """Bits of the stages that were looked at."""
    bad: int = 0
    """Bits of the stages that were not finite."""
    signs: list[m.Sign] = []

    def has(self, stage: Stage) -> bool:
        return bool(self.bad >> stage & 1)

    def looked_at(self, stage: Stage) -> bool:
        return bool((self.looked | self.bad) >> stage & 1)

    def first(self, *stages: Stage) -> m.Sign | None:
        """Its first sign at one of these stages."""
        return next((sign for sign in self.signs if sign.stage in stages), None)

    def at(self, stage: Stage) -> list[m.Sign]:
        return [sign for sign in self.signs if sign.stage == stage]


class Episode(msgspec.Struct):
    """From the first sign on. ``steps`` are its first ones, by number and rank."""

    first_step: int
    heard_s: float
    last_step: int
    last_s: float
    bad_steps: int = 1
    """How many steps had a sign."""
    steps: dict[int, dict[int, RankSigns]] = {}
    newest: dict[int, RankSigns] = {}
    """Of those ranks that had one in the first step: what they saw last."""
    newest_step: dict[int, int] = {}
    kept: int = 0

    def over(self, complete: int, now_s: float) -> bool:
        """Whether it has ended: all ranks have gone ``CLEAN_STEPS`` beyond it, for a while."""
        return complete - self.last_step >= CLEAN_STEPS and now_s - self.last_s >= CLEAN_S

    def take(self, message: m.Signs, received_s: float) -> None:
        step = message.step
        if step > self.last_step:
            self.bad_steps += 1
            self.last_step = step
        elif step < self.first_step:
            self.bad_steps += 1
        self.first_step = min(self.first_step, step)
        self.last_s = max(self.last_s, received_s)
        if step not in self.steps:
            self.steps[step] = {}
            for beyond in sorted(self.steps)[FULL_STEPS:]:
                del self.steps[beyond]
        if step in self.steps:
            here = self.steps[step]
            known = here.get(message.rank)
            if known is None:
                known = here[message.rank] = RankSigns(received_s)
            self.kept += merge(known, message, MAX_SIGNS - self.kept)
        if message.rank in self.steps.get(self.first_step, ()) and (
            message.rank in self.newest or len(self.newest) < MAX_FOLLOWED
        ):
            self._follow(message, received_s)

    def _follow(self, message: m.Signs, received_s: float) -> None:
        rank, step = message.rank, message.step
        if step > self.newest_step.get(rank, -1):
            self.newest[rank] = RankSigns(received_s)
            self.newest_step[rank] = step
        if step == self.newest_step[rank]:
            merge(self.newest[rank], message, MAX_OF_A_RANK)

    def first_seen(self) -> dict[int, RankSigns]:
        """What each rank saw in the first step."""
        return self.steps[min(self.steps)] if self.steps else {}

    def ranks(self) -> set[int]:
        """All that saw something in its first steps."""
        return {rank for here in self.steps.values() for rank in here}


def merge(known: RankSigns, message: m.Signs, room: int) -> int:
    """Add what ``message`` says; how many signs that were."""
    for stage in message.looked:
        known.looked |= 1 << stage
    added = 0
    for sign in message.signs:
        if sign.value not in NOT_FINITE:
            continue
        known.bad |= 1 << sign.stage
        count = len(known.signs)
        same = sum(1 for other in known.signs if other.stage == sign.stage)
        if count < MAX_OF_A_RANK and same < MAX_OF_A_STAGE and added < room:
            known.signs.append(_cut(sign))
            added += 1
    return added


def _cut(sign: m.Sign) -> m.Sign:
    if max(len(sign.name), len(sign.note)) <= MAX_CHARS:
        return sign
    return msgspec.structs.replace(sign, name=sign.name[:MAX_CHARS], note=sign.note[:MAX_CHARS])


class Episodes:
    """The open one, and what scalers backed off from."""

    def __init__(self) -> None:
        self.current: Episode | None = None
        self.scaled: Episode | None = None
        """Steps in a row in which nothing but scaled gradients were not finite."""

    def take(self, message: m.Signs, scaled: bool, complete: int, received_s: float) -> None:
        """What a rank saw; ``scaled`` when its loss is scaled, ``complete`` is the last step that
        all ranks have told of."""
        bad = {sign.stage for sign in message.signs if sign.value in NOT_FINITE}
        if not bad:
            return
        step = message.step
        current = self.current
        if current is not None and current.over(complete, received_s):
            current = self.current = None
        known = current is not None and step in current.steps
        if scaled and bad <= BACKOFF_STAGES and not known:
            self.scaled = _joined(self.scaled, message, received_s, gap=1)
            return
        before = self.scaled
        if current is None and before is not None and step in before.steps:
            # This step seemed to be the scaler's doing until now.
            here = before.steps.pop(step)
            heard_s = min(seen.heard_s for seen in here.values())
            self.current = Episode(step, heard_s, step, heard_s, steps={step: here})
            if not before.steps:
                self.scaled = None
        self.current = _joined(self.current, message, received_s, gap=None)

    def tick(self, complete: int, now_s: float) -> None:
        if self.current is not None and self.current.over(complete, now_s):
            self.current = None
        if self.scaled is not None and self.scaled.over(complete, now_s):
            self.scaled = None

    def forget(self, rank: int) -> None:
        for episode in (self.current, self.scaled):
            if episode is not None:
                episode.newest.pop(rank, None)
                episode.newest_step.pop(rank, None)

    def dump(self) -> Any:
        return msgspec.to_builtins([self.current, self.scaled], str_keys=False)

    def load(self, saved: Any) -> None:
        self.current, self.scaled = msgspec.convert(saved, tuple[Episode | None, Episode | None])
        for episode in (self.current, self.scaled):
            ranks = episode.ranks() if episode is not None else set()
            if ranks and max(ranks) >= MAX_SIZE:
                raise ValueError("signs of a rank beyond all")


def _joined(
    episode: Episode | None, message: m.Signs, received_s: float, gap: int | None
) -> Episode:
    """``episode`` with the message in it; a new one after more than ``gap`` clean steps."""
    step = message.step
    if episode is None or (gap is not None and step - episode.last_step > gap):
        episode = Episode(step, received_s, step, received_s)
    episode.take(message, received_s)
    return episode
