"""What is not finite in the step in work, collected from the probes of every stage.

The training thread's own. A probe that finds something calls ``add``, and ``publish`` when it is
done looking: then the sending thread is woken, so that the hub knows even if the loop raises next.
What was looked at and found in order costs one ``looked`` and is sent with the next signs.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from rankscope.protocol import limits
from rankscope.protocol.messages import Sign, Stage

MAX_NAMES: Final = 8
"""Names told of one stage in one microbatch; the rest are counted."""

MAX_REPEATED: Final = 1
"""The same, where the step before showed something at that stage already."""

Publish = Callable[[tuple[Sign, ...], tuple[Stage, ...]], None]


class Signs:
    """Of one process. ``publish`` is called with new signs and all stages looked at so far.

    The step of a sign is filled in by whoever knows it, later: it is 0 here.
    """

    __slots__ = (
        *("_before", "_looking", "_more", "_new", "_publish", "_stages", "_told"),
        *("also", "bad", "seen", "steps_since"),
    )

    def __init__(self, publish: Publish) -> None:
        self.bad = False
        """Whether anything was found in the step in work."""
        self.steps_since = -1
        """Completed steps since the last one in which something was found; -1: never was."""
        self.also: list[Callable[[], None]] = []
        """Looks at other stages, each called before something new is published; may add to it."""
        self.seen: set[Stage] = set()
        """Stages that were looked at in the step in work."""
        self._looking = False
        self._publish = publish
        self._new: dict[tuple[Stage, int], list[Sign]] = {}
        self._more: dict[tuple[Stage, int], int] = {}
        self._told: dict[tuple[Stage, int], int] = {}
        self._stages: set[Stage] = set()  # bad in the step in work
        self._before: set[Stage] = set()  # bad in the step before

    def looked(self, stage: Stage) -> None:
        """``stage`` was looked at in the step in work, whatever was found."""
        self.seen.add(stage)

    def add(
        self,
        stage: Stage,
        name: str = "",
        *,
        microbatch: int = 0,
        value: str = "nan",
        count: int = 0,
        note: str = "",
    ) -> None:
        """Something is not finite. Names of one stage and microbatch are told up to a number."""
        self.bad = True
        self.seen.add(stage)
        self._stages.add(stage)
        key = (stage, microbatch)
        told = self._told[key] = self._told.get(key, 0) + 1
        if told > (MAX_REPEATED if stage in self._before else MAX_NAMES):
            self._more[key] = self._more.get(key, 0) + 1
            return
        sign = Sign(
            stage=stage,
            step=0,
            microbatch=microbatch,
            name=name[: limits.MAX_TEXT_CHARS],
            value=value[: limits.MAX_NAME_CHARS],
            count=count,
            note=note[: limits.MAX_TEXT_CHARS],
        )
        self._new.setdefault(key, []).append(sign)

    def wanted(self, stage: Stage, microbatch: int = 0) -> bool:
        """Whether a further name of this stage would be told, and not only counted."""
        told = self._told.get((stage, microbatch), 0)
        return told < (MAX_REPEATED if stage in self._before else MAX_NAMES)

    def repeated(self, stage: Stage) -> bool:
        """Whether something was found at ``stage`` in the step before."""
        return stage in self._before

    def has(self, stage: Stage, microbatch: int | None = None) -> bool:
        """Whether something was found at ``stage`` in the step in work (in that microbatch)."""
        if microbatch is None:
            return stage in self._stages
        return (stage, microbatch) in self._told

    def shown(self, stage: Stage) -> bool:
        """Whether something was found at ``stage`` in the step in work."""
        return stage in self._stages

    def publish(self) -> None:
        """Hand on what is new, at once. Does nothing when nothing is."""
        if self._new and not self._looking:
            self._looking = True
            try:
                for look in self.also:
                    look()
            finally:
                self._looking = False
            signs = self._take()
            self._publish(signs[: limits.MAX_SIGNS], tuple(sorted(self.seen)))

    def end_step(self) -> None:
        """The step in work ends: publish what is left, and begin with a clean slate.

        Where nothing was ever bad it is enough to forget what was ``seen``.
        """
        if self.bad:
            self.publish()
            self.bad = False
            self.steps_since = 0
            self._before = self._stages
            self._stages = set()
            self._told.clear()
            self._more.clear()
        elif self.steps_since >= 0:
            self.steps_since += 1
            self._before = set()
        if self.seen:
            self.seen.clear()

    def _take(self) -> tuple[Sign, ...]:
        """New signs, in the order in which their stages were seen; with how many more there are."""
        taken: list[Sign] = []
        for key, signs in self._new.items():
            others = self._more.pop(key, 0)
            if others:
                signs[-1] = msgspec.structs.replace(signs[-1], others=others)
            taken += signs
        self._new = {}
        return tuple(taken)
