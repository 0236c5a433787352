"""A NaN that has reached everything costs little more in each further step."""

import math
from typing import Any

import pytest
import torch

from rankscope.protocol.messages import Signs, Stage
from support.observed import observed


class Looks:
    """Counts passes over tensors that look for elements that are not finite."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("isfinite", "isnan"):
            monkeypatch.setattr(torch, name, self._counting(getattr(torch, name)))

    def _counting(self, function: Any) -> Any:
        def counted(tensor: torch.Tensor) -> torch.Tensor:
            self.count += tensor.numel() > 1
            found: torch.Tensor = function(tensor)
            return found

        return counted


def looks(looking: Looks, layers: int, clips: bool) -> tuple[list[int], list[list[Stage]]]:
    """In each step after a NaN came into one parameter; and the stages that were told bad."""
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    counts = []
    with observed((model, optimizer)) as seen:
        for step in range(1, 11):
            if step == 5:
                with torch.no_grad():
                    model.get_parameter("1.weight")[0, 0] = math.nan
            looking.count = 0
            model(torch.ones(2, 8)).sum().backward()
            if clips:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            counts.append(looking.count)
        told = [
            [
                sign.stage
                for kind, fields in seen.urgent
                if kind is Signs
                for sign in fields["signs"]
                if fields["step"] == step
            ]
            for step in range(1, 11)
        ]
        assert seen.faults == []
    return counts[4:], told[4:]


@pytest.mark.parametrize("clips", [False, True])
def test_a_nan_that_lasts_is_not_counted_in_every_parameter_of_every_step(
    clips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often in a model four times as deep; the step in which it began is looked at whole."""
    looking = Looks(monkeypatch)
    few, _ = looks(looking, 6, clips)
    many, told = looks(looking, 24, clips)
    assert few[4:] == many[4:]  # in step 8 it is learned what is usual
    assert many[-1] < 24
    assert Stage.PARAMETER in told[0]
    assert all(Stage.GRADIENT in stages for stages in told)
