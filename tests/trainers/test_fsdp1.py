"""FSDP1, for which there is no trainer: the agent attaches, and does no harm."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.protocol import messages as m
from support.listener import Listener
from support.sentinels import no_sentinel

SCRIPT = Path(__file__).parent / "ranks" / "fsdp1.py"
STEPS = 5


@pytest.mark.processes
def test_an_fsdp1_model_can_be_watched(launch: Callable[..., Any], tmp_path: Path) -> None:
    """The weights are the same to the bit; seen are the wrapper, the phases and the loss."""
    with Listener(tmp_path / "agents") as hub, no_sentinel(hub.run) as temporary:
        ended = launch(str(SCRIPT), ranks=2, **hub.environ, TMPDIR=str(temporary))
        assert ended.code == 0, ended
        hub.heard_out()
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        assert {line["rank"] for line in lines} == {0, 1}
        assert all(line["watched"] == line["unwatched"] for line in lines)
        hello = {message.rank: message.trainer for message in hub.of_kind(m.Hello)}
        assert hello == {0: "fsdp1", 1: "fsdp1"}
        steps = [step for beat in hub.of_kind(m.Beat) for step in beat.steps]
    assert sorted(step.step for step in steps) == sorted([*range(1, STEPS + 1)] * 2)
    for step in steps:
        assert step.loss is not None
        assert step.forward_s > 0
        assert step.backward_s > 0
        assert step.optimizer_s > 0
