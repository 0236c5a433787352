"""What rank 0 says of the run: a line now and then, and on request a file with every step."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rankscope.trainers.config import Config

HELD_S = 1.0
"""Longer than a boundary takes at which no operator has the ranks stand."""


class Report:
    """Progress of a run of ``config.steps`` updates; silent on all ranks but rank 0."""

    def __init__(self, config: Config, rank: int, history: TextIO | None) -> None:
        self.config = config
        self.speaks = rank == 0
        self.history = history
        self.start_clock()

    def start_clock(self) -> None:
        """Speeds are those since here."""
        self.since_s = time.perf_counter()
        self.tokens = 0
        self.updates = 0

    @contextmanager
    def boundary(self) -> Iterator[None]:
        """The end of a step: the time for which an operator has ranks stand there is of none."""
        began_s = time.perf_counter()
        yield
        held_s = time.perf_counter() - began_s
        if held_s > HELD_S:
            self.since_s += held_s

    def wants(self, step: int) -> bool:
        """Whether ``step`` is reported; the same on all ranks, for they add up its loss."""
        if self.config.history is not None:
            return True
        return self.shows(step)

    def shows(self, step: int) -> bool:
        return step in (1, self.config.steps) or step % self.config.log_every == 0

    def count(self, tokens: int) -> None:
        """An update of ``tokens`` valid tokens on all ranks together was done."""
        self.tokens += tokens
        self.updates += 1

    def step(self, step: int, *, loss: float, norm: float, lr: float, tokens: int) -> None:
        """Report update ``step``: its loss and gradient norm over all ranks, and its tokens."""
        if not self.speaks:
            return
        if self.history is not None:
            line = {"step": step, "loss": loss, "norm": norm, "lr": lr, "tokens": tokens}
            print(json.dumps(line), file=self.history, flush=True)
        if self.shows(step):
            took_s = max(time.perf_counter() - self.since_s, 1e-9)
            self.say(
                f"step {step:>5}/{self.config.steps}  loss {loss:.4f}  |g| {norm:.3f}  lr {lr:.2e}"
                f"  {1000 * took_s / self.updates:.0f} ms/step  {self.tokens / took_s:,.0f} tok/s"
            )
            self.start_clock()

    def evaluation(self, step: int, loss: float) -> None:
        self.say(f"step {step:>5}/{self.config.steps}  held-out loss {loss:.4f}")
        self.start_clock()

    def rejected(self, step: int) -> None:
        self.say(f"no rank had a valid token for step {step}: update rejected on all ranks")

    def say(self, line: str) -> None:
        if self.speaks:
            print(line, flush=True)


@contextmanager
def reporting(config: Config, rank: int) -> Iterator[Report]:
    """The report of a run, its history file open for as long as it lasts."""
    if config.history is None or rank != 0:
        yield Report(config, rank, None)
        return
    with config.history.open("a" if config.resume else "w", encoding="utf-8") as file:
        yield Report(config, rank, file)
