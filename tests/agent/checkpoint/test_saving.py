"""Saves of one process: what is in them, what is kept, and what is refused."""

import contextlib
import math
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.agent.checkpoint import Checkpointer, hands, publish
from rankscope.agent.checkpoint.gather import has_memory
from rankscope.agent.checkpoint.meeting import Outcome
from rankscope.agent.checkpoint.plan import plan
from rankscope.protocol import checkpoints, coverage
from rankscope.protocol.exits import UserError
from rankscope.protocol.manifest import Chunk, Place, TensorEntry


def parts(**more: Any) -> dict[str, Any]:
    model = nn.Linear(64, 64)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1), **more}


def train(things: dict[str, Any], steps: int = 1) -> None:
    for _ in range(steps):
        things["model"](torch.randn(4, 64)).square().mean().backward()
        things["optimizer"].step()
        things["optimizer"].zero_grad()


def values(things: dict[str, Any]) -> list[Tensor]:
    optimizer = things["optimizer"]
    state = [v for p in optimizer.state.values() for v in p.values()]
    return [t.detach().clone() for t in (*things["model"].parameters(), *state)]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(0, 40), max_size=8),
    st.integers(1, 5),
)
def test_all_ranks_together_write_everything_once(rows: dict[str, int], world_size: int) -> None:
    """Each works out for itself what it writes."""
    tensors = {name: torch.zeros(count, 3) for name, count in rows.items()}
    pieces = [piece for rank in range(world_size) for piece in plan(tensors, (), rank, world_size)]
    for name, tensor in tensors.items():
        place = Place("f", 0, 0, 0, 0, 0, 0)
        chunks = [Chunk(p.offsets, p.lengths, place) for p in pieces if p.name == name]
        assert coverage.uncovered(TensorEntry("float32", tuple(tensor.shape), chunks)) == ""


@pytest.mark.parametrize("least_bytes", [0, 1 << 30])
def test_what_is_saved_is_the_state_of_the_boundary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    """However soon it is changed, and past torch's own count of changes; whoever writes it; and the
    buffer is used again without mixing saves."""
    monkeypatch.setattr(hands, "LEAST_BYTES", least_bytes)
    things = parts()
    saver = Checkpointer(state=things, dir=tmp_path)
    expected = {}
    for step in (1, 2, 3):
        train(things)
        expected[step] = values(things)
        saver.save(step)
        for parameter in things["model"].parameters():
            parameter.data.add_(1.0)
        train(things, 3)
        outcome = saver.wait()
        assert outcome is not None
        assert outcome.ok, outcome
    for step, before in expected.items():
        resumed = saver.resume(tmp_path / checkpoints.directory_name(step))
        assert resumed is not None
        assert same(values(things), before)


def test_loading_into_a_fresh_optimizer_and_one_that_never_stepped(tmp_path: Path) -> None:
    """A save before the first update makes no update of its own."""
    things = parts()
    before = values(things)
    saver = Checkpointer(state=things, dir=tmp_path, sync=True)
    things["optimizer"].param_groups[0]["lr"] = 0.25
    first = saver.save(0)
    assert first is not None
    assert first.ok, first
    assert not things["optimizer"].state
    assert same(values(things), before)
    train(things)
    second = saver.save(1)
    assert second is not None
    fresh = parts()
    loader = Checkpointer(state=fresh, dir=tmp_path)
    loader.resume(first.path)
    assert fresh["optimizer"].param_groups[0]["lr"] == 0.25
    assert not fresh["optimizer"].state
    loader.resume(second.path)
    assert same(values(fresh), values(things))


def test_random_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    """Of Python, NumPy and torch, whatever was drawn while loading."""
    saver = Checkpointer(state={"model": nn.Linear(2, 2)}, dir=tmp_path, sync=True)
    saver.save(1)
    drawn = (random.random(), numpy.random.rand(), torch.rand(1))
    resumed = saver.resume()
    assert resumed is not None
    torch.rand(100)
    resumed.restore_random()
    assert (random.random(), numpy.random.rand(), torch.rand(1)) == drawn


def test_a_gradient_scaler_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its factor and how long it has not overflowed decide which later updates are made."""

    def begin() -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        scaler = torch.amp.grad_scaler.GradScaler("cpu", growth_interval=4)
        return {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "scaler": scaler}

    def steps(things: dict[str, Any], first: int, last: int) -> list[Any]:
        model, optimizer, scaler = things.values()
        told = []
        for step in range(first, last + 1):
            loss = model(torch.full((1, 3), float(step))).square().sum()
            factor = torch.tensor(math.inf if step % 5 == 1 else 1.0)
            (scaler.scale(loss) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            told.append((loss.item(), scaler.get_scale(), model.weight.tolist()))
        return told

    things = begin()
    steps(things, 1, 9)
    saver = Checkpointer(state=things, dir=tmp_path, sync=True)
    outcome = saver.save(9)
    assert outcome is not None
    assert outcome.ok, outcome
    whole = steps(things, 10, 20)
    again = begin()
    assert Checkpointer(state=again, dir=tmp_path).resume("auto") is not None
    assert steps(again, 10, 20) == whole
    assert len({scale for _, scale, _ in whole}) > 1


def test_what_each_rank_has_for_itself_and_keys_that_are_numbers(tmp_path: Path) -> None:
    """State of other things keeps its types."""

    class Thing:
        def __init__(self) -> None:
            self.state: dict[Any, Any] = {1: "one", "two": [2, (3.0, None)]}

        def state_dict(self) -> dict[Any, Any]:
            return self.state

        def load_state_dict(self, state: dict[Any, Any]) -> None:
            self.state = state

    mine, ours = Thing(), Thing()
    saver = Checkpointer(state={"ours": ours}, per_rank={"mine": mine}, dir=tmp_path, sync=True)
    saver.save(1)
    mine.state, ours.state = {}, {}
    saver.resume()
    assert mine.state == ours.state == Thing().state


def test_a_state_that_cannot_be_saved_costs_the_save_alone(tmp_path: Path) -> None:
    """What could only be loaded by running its pickle is not written in the first place."""

    class Odd:
        def state_dict(self) -> Any:
            return {"lock": threading.Event}

    saver = Checkpointer(state={"odd": Odd()}, dir=tmp_path, sync=True)
    outcome = saver.save(3)
    assert outcome is not None
    assert not outcome.ok
    assert "odd holds a dict that cannot be saved" in outcome.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [0, 4 * 256 * 256 - 1])
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.t(), lambda t: t[1::2, 1:]])
def test_a_tensor_whose_memory_was_taken_from_it_costs_the_save_alone(
    view: Callable[[Tensor], Tensor], left: int, tmp_path: Path
) -> None:
    """What offloads or shards may take it for a while: to read there would end the process."""

    class Table:
        def __init__(self) -> None:
            self.numbers = view(torch.randn(256, 256))

        def state_dict(self) -> dict[str, Tensor]:
            return {"numbers": self.numbers}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    table = Table()
    saver = Checkpointer(state=parts(table=table), dir=tmp_path, sync=True)
    size_bytes = table.numbers.untyped_storage().nbytes()
    table.numbers.untyped_storage().resize_(left)
    outcome = saver.save(1)
    assert outcome is not None
    assert not outcome.ok
    assert "table.numbers has no memory" in outcome.text
    table.numbers.untyped_storage().resize_(size_bytes)
    outcome = saver.save(2)
    assert outcome is not None
    assert outcome.ok, outcome


def test_a_tensor_that_stands_for_another_one_needs_no_memory_of_its_own() -> None:
    """A shard that waits for a collective, or one in a type of a library's own."""

    class Standing(Tensor):
        @classmethod
        def __torch_dispatch__(cls, *args: Any, **more: Any) -> Any:
            raise NotImplementedError

    make: Any = Tensor._make_wrapper_subclass
    assert has_memory(make(Standing, (8, 8), storage_size=0))
    taken = torch.zeros(8, 8)
    taken.untyped_storage().resize_(0)
    assert not has_memory(taken)


def test_only_verified_checkpoints_count_when_old_ones_go(tmp_path: Path) -> None:
    """A bad one that is newer takes no good one's place; an operator's stays."""
    things = {"model": nn.Linear(2, 2)}
    everything = Checkpointer(state=things, dir=tmp_path, sync=True)
    everything.save(1, request=5)
    for step in (2, 3, 4):
        everything.save(step)
    file = tmp_path / "step-00000004" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:-3] + b"bad")
    saver = Checkpointer(state=things, dir=tmp_path, sync=True, keep=2)
    saver.save(5)
    left = sorted(path.name for path in tmp_path.glob("step-*"))
    assert left == ["step-00000001", "step-00000003", "step-00000004", "step-00000005"]
    assert not list(tmp_path.glob(f"{checkpoints.TEMPORARY}*"))


def test_a_directory_that_cannot_be_used_is_refused_at_once(tmp_path: Path) -> None:
    """A file, below a file; in one line that says what to do."""
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below"):
        with pytest.raises(UserError, match="name a directory") as caught:
            Checkpointer(state={}, dir=tmp_path / place)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="cannot make"):
        Checkpointer(state={}, dir="a\0b")
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(UserError, match="cannot write to"):
            Checkpointer(state={}, dir=tmp_path / "closed")


def test_what_has_no_state_is_refused_at_once(tmp_path: Path) -> None:
    """Not only when the first save fails."""
    with pytest.raises(UserError, match="epoch is a int, which has no state_dict"):
        Checkpointer(state={"epoch": 3}, dir=tmp_path)


def test_a_latest_that_cannot_be_moved_is_told(tmp_path: Path) -> None:
    """The checkpoint is there all the same, and nothing is left lying about."""
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").touch()
    saver = Checkpointer(state={"model": nn.Linear(2, 2)}, dir=tmp_path, sync=True)
    outcome = saver.save(1)
    assert outcome is not None
    assert outcome.ok
    assert "latest does not lead to it" in outcome.text
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["latest", "step-00000001"]
    resumed = saver.resume("auto")
    assert resumed is not None


def test_words_of_an_error_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    """Whoever wrote them."""
    saver = Checkpointer(state={"model": nn.Linear(2, 2)}, dir=tmp_path)

    def fail(phase: str, step: int) -> None:
        raise ValueError("red \x1b[31m alarm")

    saver.on_phase.append(fail)
    saver.save(1)
    outcome = saver.wait()
    assert outcome is not None
    assert "red \\x1b[31m alarm" in outcome.text


def test_a_directory_that_is_gone_later_costs_saves_alone(tmp_path: Path) -> None:
    """It is made again, or the save fails in words."""
    saver = Checkpointer(state={"model": nn.Linear(2, 2)}, dir=tmp_path / "here", sync=True)
    (tmp_path / "here").rmdir()
    (tmp_path / "here").write_text("in the way")
    outcome = saver.save(1)
    assert outcome is not None
    assert not outcome.ok
    (tmp_path / "here").unlink()
    outcome = saver.save(2)
    assert outcome is not None
    assert outcome.ok, outcome


def test_a_save_can_be_cancelled(tmp_path: Path) -> None:
    """Nothing of it stays."""
    saver = Checkpointer(state={"model": nn.Linear(512, 512)}, dir=tmp_path)
    saver.on_phase.append(lambda phase, step: saver.cancel() if phase == "writing" else None)
    saver.save(1)
    outcome = saver.wait()
    assert outcome is not None
    assert (outcome.ok, outcome.text) == (False, "cancelled")
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_is_not_over_is_not_hidden_by_the_next_one(tmp_path: Path) -> None:
    """That one is copied already and waits: progress is of the first, and either can be cancelled
    without the other."""
    for cancelled, came in ((None, [True, True]), (7, [False, True]), (0, [True, False])):
        reached, go_on = threading.Event(), threading.Event()
        saver = Checkpointer(state={"model": nn.Linear(8, 8)}, dir=tmp_path / str(cancelled))
        outcomes: list[bool] = []

        def on_phase(
            phase: str,
            step: int,
            reached: threading.Event = reached,
            go_on: threading.Event = go_on,
        ) -> None:
            if (phase, step) == ("syncing", 1):
                reached.set()
                assert go_on.wait(60)

        def on_outcome(found: Outcome, outcomes: list[bool] = outcomes) -> None:
            outcomes.append(found.ok)

        saver.on_phase.append(on_phase)
        saver.on_outcome.append(on_outcome)
        saver.save(1, request=7)
        assert reached.wait(60)
        saver.save(2)
        assert saver.progress()[:4:2] == ("syncing", 1)
        if cancelled is not None:
            saver.cancel(cancelled)
        go_on.set()
        saver.wait()
        assert outcomes == came
        assert saver.progress().step == 2


def test_a_save_that_ends_at_this_very_moment_hides_none_that_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that the next one waits to write must not be overwritten: it would be torn."""
    saver = Checkpointer(state={"model": nn.Linear(8, 8)}, dir=tmp_path)
    reached, go_on = threading.Event(), threading.Event()
    came: dict[int, Outcome] = {}

    def on_phase(phase: str, step: int) -> None:
        if (phase, step) == ("syncing", 1):
            reached.set()
            assert go_on.wait(60)

    saver.on_phase.append(on_phase)
    saver.on_outcome.append(lambda found: came.update({found.step: found}))
    saver.save(1)
    assert reached.wait(60)
    saver.save(2)
    first = saver._jobs[0]

    def ends_now() -> bool:
        saver._jobs.remove(first)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(first.written, "is_set", ends_now)
        saver.save(3)
    saver._jobs.insert(0, first)  # its thread takes it out
    go_on.set()
    saver.wait()
    assert "still writing the checkpoint of step 2" in came[3].text
    assert [came[1].ok, came[2].ok] == [True, True]


def test_a_folder_that_another_rank_still_writes_to_is_taken_away(tmp_path: Path) -> None:
    """It may not have heard yet that the save is over."""
    folder = publish.make_folder(tmp_path, "step-00000004")

    def write() -> None:
        for number in range(300):
            with contextlib.suppress(FileNotFoundError):
                (folder / f"receipt-{number}").write_bytes(b"x")

    writer = threading.Thread(target=write)
    writer.start()
    publish.remove(folder)
    writer.join()
    assert list(tmp_path.iterdir()) == []
