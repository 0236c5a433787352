"""Numbers before reduction: what ranks tell of them, and what comparing the ranks says."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rankscope.hub.inquiries import CHECKSUMS
from rankscope.hub.state.columns import Flags
from rankscope.hub.state.numerics.columns import LATE_STEPS, NORM_STEPS, NumericColumns
from rankscope.hub.state.numerics.episodes import CLEAN_S, CLEAN_STEPS, Episodes
from rankscope.hub.state.numerics.logs import Codes, decoded, logs
from rankscope.hub.state.numerics.outliers import (
    Past,
    may_have_outliers,
    outliers,
    past_of,
    shared_moves,
    stands_out,
)
from rankscope.hub.state.numerics.parameters import Parameters
from rankscope.hub.state.numerics.replicas import MAX_ASKED, Replicas
from rankscope.hub.state.numerics.steps import find_twins, lone_skips, some_skipped
from rankscope.protocol import messages as m

if TYPE_CHECKING:
    from rankscope.hub.state.run import RunState

ROWS_AT_ONCE = 2048
"""Pasts of so many ranks are taken anew in one go; of a larger world it takes several."""

MAX_EVENTS = 64


class Outlier(msgspec.Struct):
    """A rank's gradient that left its past and its peers."""

    rank: int
    step: int
    norm: float
    usual: float | None
    """Its own median norm; None in its first steps."""
    peers: float | None
    """The median of the others in that step."""
    heard_s: float
    last_step: int
    last_s: float
    times: int = 1


class Skip(msgspec.Struct):
    """Ranks that made no update while others did."""

    step: int
    ranks: list[int]
    others: int
    """How many made theirs."""
    heard_s: float
    last_step: int
    last_s: float
    times: int = 1


class Numerics:
    """The part of the state that ``diagnose`` reads."""

    def __init__(self) -> None:
        self.columns = NumericColumns()
        self._begin()

    def _begin(self) -> None:
        self.episodes = Episodes()
        self.replicas = Replicas()
        self.parameters = Parameters()
        self.outliers: list[Outlier] = []
        self.skips: list[Skip] = []
        self.judged = 0
        """The last step at which the ranks were compared."""
        self.complete = 0
        """The last step of which every live rank has told all it will tell."""
        self._past: Past | None = None
        self._turn = 0
        self._normed = 0  # the last step of which any rank has told its norm

    # --- what ranks say -----------------------------------------------------------------------

    def record(self, rank: int, record: m.StepRecord) -> bool:
        """Take in a step; whether comparing the ranks in it may tell something."""
        self.columns.record(rank, record)
        norm = record.local_norm
        if norm is not None and record.step > self._normed:
            self._normed = record.step
        return (
            record.updated is False
            or self.columns.cells.twin_steps[rank] > 0
            or (norm is not None and self._stands_out(rank, norm))
        )

    def late(self, rank: int, late: m.LateValues) -> bool:
        """The same of values of a step that came off the device after its record."""
        if late.local_norm is None:
            return False
        self.columns.late[rank] = True
        self.columns.local_norm(rank, late.step, late.local_norm)
        self._normed = max(self._normed, late.step)
        return self._stands_out(rank, late.local_norm)

    def _stands_out(self, rank: int, norm: float) -> bool:
        past = self._past
        return past is None or rank >= len(past.usual) or stands_out(norm, rank, past)

    def signs(self, message: m.Signs, received_s: float) -> None:
        columns, rank = self.columns, message.rank
        if not message.signs:
            return
        bits = 0
        for sign in message.signs:
            bits |= 1 << sign.stage
        if message.step > columns.last_bad_step[rank]:
            columns.bad_steps[rank] += 1
            columns.last_bad_step[rank] = message.step
            columns.bad_stages[rank] = 0
        if message.step == columns.last_bad_step[rank]:
            columns.bad_stages[rank] |= bits
        scaled = not np.isnan(columns.loss_scale[rank]) or any(
            "scaler" in sign.note for sign in message.signs
        )
        self.episodes.take(message, scaled, self.complete, received_s)

    # --- comparing them -----------------------------------------------------------------------

    def done(self, state: "RunState") -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
        """Up to which step each rank has told all it will tell, shape (columns,)."""
        recorded = state.ranks.recorded
        columns = self.columns
        late = np.maximum(columns.norm_step, recorded - LATE_STEPS)
        found = np.where(columns.late, np.minimum(late, recorded), recorded)
        return np.asarray(found, dtype=np.int64)

    def tick(self, state: "RunState", now_s: float) -> None:
        """Compare the ranks at the steps that all live ones have completed since the last time."""
        among = state.ranks.known & ~state.ranks.over()
        count = int(np.count_nonzero(among))
        if count:
            self.complete = max(self.complete, int(self.done(state)[among].min()))
        self.episodes.tick(self.complete, now_s)
        self.replicas.tick(self.complete, count, now_s)
        first = max(self.judged + 1, self.complete - NORM_STEPS + 1)
        steps = range(first, self.complete + 1)
        if steps:
            self._judge(state, steps, among, now_s)
            self.judged = self.complete
            if self._normed >= first:  # norms may be read at some of the steps only
                self._refresh()
        self.outliers = [one for one in self.outliers if not self._past_it(one, now_s)]
        self.skips = [one for one in self.skips if not self._past_it(one, now_s)]

    def _past_it(self, one: Outlier | Skip, now_s: float) -> bool:
        return self.complete - one.last_step >= CLEAN_STEPS and now_s - one.last_s >= CLEAN_S

    def _judge(self, state: "RunState", steps: range, among: Flags, now_s: float) -> None:
        some = some_skipped(self.columns, steps)
        may = self._may_have_outliers(steps, among) if self._normed >= steps[0] else set()
        find_twins(self.columns, steps, among)
        for step in steps:
            if some:
                # The first step may begin midway.
                started = among & (state.ranks.start_step + 1 < step)
                skipped = lone_skips(self.columns, step, started)
                if skipped:
                    others = int(np.count_nonzero(among)) - len(skipped)
                    self._skipped(step, skipped, others, now_s)
            current = self.episodes.current
            if step in may and (current is None or step < current.first_step):
                self._outliers(step, among, now_s)

    def _may_have_outliers(self, steps: range, among: Flags) -> set[int]:
        """Those of ``steps`` that have to be looked at."""
        columns = self.columns
        kept = [(step, slot) for step in steps if (slot := columns.steps.slot(step)) is not None]
        if not kept:
            return set()
        if self._past is None or len(self._past.usual) != columns.size:
            self._past = _past(columns.past(kept[0][0]))
        may = may_have_outliers(columns.norms[:, [slot for _, slot in kept]], self._past, among)
        return {step for (step, _), one in zip(kept, may.tolist(), strict=True) if one}

    def _skipped(self, step: int, ranks: list[int], others: int, now_s: float) -> None:
        for known in self.skips:
            if known.ranks == ranks:
                known.last_step, known.last_s = step, now_s
                known.times += 1
                return
        if len(self.skips) < MAX_EVENTS:
            self.skips.append(Skip(step, ranks, others, now_s, step, now_s))

    def _outliers(self, step: int, among: Flags, now_s: float) -> None:
        codes = self.columns.norms_at(step)
        if codes is None or self._past is None:
            return
        for rank in outliers(codes, self._past, among):
            self._outlier(rank, step, among, now_s)

    def _outlier(self, rank: int, step: int, among: Flags, now_s: float) -> None:
        codes = self.columns.norms_at(step)
        assert codes is not None
        assert self._past is not None
        for known in self.outliers:
            if known.rank == rank:
                known.last_step, known.last_s = step, now_s
                known.times += 1
                return
        if len(self.outliers) >= MAX_EVENTS:
            return
        others = logs(codes[among & (np.arange(len(codes)) != rank)])
        others = others[~np.isnan(others)]
        usual = float(self._past.usual[rank])
        columns = self.columns
        exact = columns.norm.item(rank) if columns.norm_step[rank] == step else None
        self.outliers.append(
            Outlier(
                rank=rank,
                step=step,
                norm=exact if exact is not None else decoded(int(codes[rank])) or 0.0,
                usual=None if np.isnan(usual) else float(np.exp(usual)),
                peers=float(np.exp(np.median(others))) if others.size else None,
                heard_s=now_s,
                last_step=step,
                last_s=now_s,
            )
        )

    def _refresh(self) -> None:
        """Take each rank's past anew; of a large world a part of the ranks."""
        codes = self.columns.past(self.judged + 1)
        size = len(codes)
        if self._past is None or len(self._past.usual) != size or size <= ROWS_AT_ONCE:
            self._past = _past(codes)
            return
        begin = self._turn % size
        rows = slice(begin, begin + ROWS_AT_ONCE)
        part = past_of(codes[rows], shared_moves(codes))
        self._past.usual[rows], self._past.spread[rows] = part.usual, part.spread
        self._past.top[rows] = part.top
        self._turn = begin + ROWS_AT_ONCE

    @property
    def past(self) -> Past:
        """Each rank's usual norm and how it varies."""
        if self._past is None or len(self._past.usual) != self.columns.size:
            self._past = _past(self.columns.past(self.judged + 1))
        return self._past

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        self.columns.reserve(size)

    def forget(self, rank: int) -> None:
        self.columns.clear(rank)
        self._past = None
        self.episodes.forget(rank)
        self.replicas.forget(rank)
        self.parameters.forget(rank)

    def forget_all(self) -> None:
        self.columns.reset()
        self._begin()

    def dump(self) -> dict[str, Any]:
        return {
            "columns": self.columns.dump(),
            "episodes": self.episodes.dump(),
            "replicas": self.replicas.dump(),
            "parameters": self.parameters.dump(),
            "outliers": msgspec.to_builtins(self.outliers),
            "skips": msgspec.to_builtins(self.skips),
            "judged": self.judged,
            "complete": self.complete,
        }

    def load(self, saved: Any) -> None:
        size = self.columns.size
        self.columns.load(saved["columns"])
        self.columns.reserve(size)
        self._normed = max(self.columns.steps.numbers)
        self.episodes.load(saved["episodes"])
        self.replicas.load(saved["replicas"])
        self.parameters.load(saved["parameters"])
        self.outliers = msgspec.convert(saved["outliers"], list[Outlier])
        self.skips = msgspec.convert(saved["skips"], list[Skip])
        self.judged = msgspec.convert(saved["judged"], int)
        self.complete = msgspec.convert(saved["complete"], int)


def _past(codes: Codes) -> Past:
    return past_of(codes, shared_moves(codes))


def signs(state: "RunState", message: m.Signs, received_s: float) -> None:
    state.numerics.signs(message, received_s)
    episode = state.numerics.episodes.current
    if episode is not None and message.step <= episode.first_step:
        state.news()  # of what goes on there is no hurry, and 16,384 ranks may tell


def checksums(state: "RunState", message: m.Checksums, received_s: float) -> None:
    replicas = state.numerics.replicas
    changed = replicas.changed(message)
    if replicas.take(message, received_s) or changed:
        state.news()
    if changed and state.size() <= MAX_ASKED:
        # Whoever is asked says at once what it checks next, too: see `Talk.calm`.
        state.inquiries.want_all(range(state.size()), CHECKSUMS)


def parameter_norms(state: "RunState", message: m.ParameterNorms, received_s: float) -> None:
    state.numerics.parameters.take(message)
