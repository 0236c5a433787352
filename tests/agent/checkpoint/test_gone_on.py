"""That a rank goes on from a checkpoint is among the facts that it tells."""

from pathlib import Path

import pytest
from torch import nn

from rankscope.agent import goneon
from rankscope.agent.checkpoint import Checkpointer
from rankscope.agent.observer import Observer
from rankscope.agent.session import Session
from rankscope.agent.talk import Sequence
from rankscope.protocol import resumed


def facts() -> dict[str, str]:
    read: dict[str, str] = Observer().facts.read()
    return {name: read[name] for name in (resumed.STEP, resumed.PATH) if name in read}


@pytest.fixture(autouse=True)
def alone() -> None:
    """Nothing of another test."""
    goneon.ended()


@pytest.mark.parametrize("named", [False, True])
def test_what_was_loaded_is_told_whoever_saves(tmp_path: Path, named: bool) -> None:
    """Of the newest and of one that was named; until that training is over."""
    model = nn.Linear(2, 2)
    saver = Checkpointer(state={"model": model}, dir=tmp_path, sync=True)
    outcome = saver.save(7)
    assert outcome is not None
    assert facts() == {}
    other = Checkpointer(state={"model": model}, dir=tmp_path / "elsewhere" if named else tmp_path)
    assert other.resume(outcome.path if named else "auto") is not None
    assert facts() == {resumed.STEP: "7", resumed.PATH: outcome.path}
    session = Session("test", 7, Sequence())
    session.start()
    session.close("finished")
    assert facts() == {}


def test_where_there_is_none_nothing_is_told(tmp_path: Path) -> None:
    """The run begins at step 1."""
    assert Checkpointer(state={"model": nn.Linear(2, 2)}, dir=tmp_path).resume("auto") is None
    assert facts() == {}
