"""What the trainer prints of its own speed."""

import re

import pytest

from rankscope.trainers import report
from rankscope.trainers.config import Config
from rankscope.trainers.report import Report


class Clock:
    """Time goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("held_s", "told_ms"), [(0.0, 500), (0.4, 900), (600.0, 500)])
def test_the_time_in_a_pause_is_of_no_step(
    held_s: float,
    told_ms: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a boundary takes by itself is."""
    clock = Clock()
    monkeypatch.setattr(report, "time", clock)
    told = Report(Config(steps=1), 0, None)
    clock.now_s += 0.5
    with told.boundary():
        clock.now_s += held_s
    told.count(8)
    told.step(1, loss=1.0, norm=1.0, lr=0.1, tokens=8)
    (shown,) = re.findall(r"(\d+) ms/step", capsys.readouterr().out)
    assert int(shown) == told_ms
