"""Notes of the collectives that a rank's own code calls, and the memory that outlives it."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankscope.agent import nodedir
from rankscope.agent.evidence import blackbox, recorder, signature
from rankscope.agent.evidence.blackbox import SIZE_BYTES, SLOTS, BlackBox, Written, encoded
from rankscope.agent.observer import Observer
from rankscope.agent.probes.issued import Issued
from rankscope.protocol.messages import ForeignStacks, Operation
from rankscope.protocol.procs import start_time_s
from support.noderouter import NodeRouter
from support.sentinels import make_node_dir, sentinel


def what(**changes: str) -> Written:
    known = {"group": "0", "name": "gloo:all_reduce", "sizes": "[8] -> [8]"}
    return Written(**(known | {"dtype": "float32", "source": "train.py:7 in main"} | changes))


@pytest.fixture
def box() -> Iterator[BlackBox]:
    made = BlackBox()
    yield made
    made.close()


def contents(box: BlackBox) -> bytes:
    descriptor = blackbox.open_of(os.getpid(), box.descriptor)
    assert descriptor is not None
    try:
        return os.pread(descriptor, SIZE_BYTES, 0)
    finally:
        os.close(descriptor)


def test_the_newest_calls_are_read_in_their_order(box: BlackBox) -> None:
    """From outside, by whoever opens the memory; older ones make room."""
    for seq in range(1, SLOTS + 10):
        box.write(seq * 1000, seq, encoded(what(group=f"g{seq}")))
    calls = blackbox.read(contents(box))
    assert [call.seq for call in calls] == list(range(10, SLOTS + 10))
    assert calls[-1] == (73_000, 73, what(group="g73"))
    operation = blackbox.operations(calls, 73_000 + 2_000_000_000)[-1]
    assert operation == Operation(
        group="g73",
        seq=73,
        name="gloo:all_reduce",
        sizes="[8] -> [8]",
        dtype="float32",
        state="scheduled",
        source="train.py:7 in main",
        age_s=2.0,
    )


def test_going_on_is_counted_after_each_call(box: BlackBox) -> None:
    """From the first call on, in the memory that the next ones are in, however often."""
    box.went_on()
    for seq in range(1, SLOTS + 10):
        box.write(1, seq, encoded(what()))
        for _ in range(seq % 3):
            box.went_on()
    raw = contents(box)
    calls = [(call.seq, call.what.name) for call in blackbox.read(raw)]
    went_on = (0, blackbox.WENT_ON.name)
    assert calls == [
        one
        for seq in range(10, SLOTS + 10)
        for one in ((seq, "gloo:all_reduce"), *[went_on] * (seq % 3))
    ]
    for _ in range(1000):
        box.went_on()
    assert [call.seq for call in blackbox.read(contents(box)) if call.seq] == [
        *range(10, SLOTS + 10)
    ]
    assert sum(one != other for one, other in zip(contents(box), raw, strict=True)) == 1


def test_long_names_are_cut_and_damage_is_left_out(box: BlackBox) -> None:
    """No text and no torn slot keeps the others from being read."""
    box.write(1, 1, encoded(what(source="ä" * 500, group="g" * 300)))
    box.write(2, 2, encoded(what()))
    raw = bytearray(contents(box))
    assert [call.seq for call in blackbox.read(bytes(raw))] == [1, 2]
    assert blackbox.read(bytes(raw))[0].what.source.startswith("ää")
    raw[blackbox.SLOT_BYTES + 30] ^= 0xFF
    assert [call.seq for call in blackbox.read(bytes(raw))][:1] == [1]
    assert blackbox.read(b"") == blackbox.read(bytes(SIZE_BYTES)) == []
    blackbox.read(os.urandom(SIZE_BYTES))


def test_only_a_black_box_is_opened_as_one(tmp_path: Path) -> None:
    """A number that stands for another file, or for none, is not read."""
    with (tmp_path / "secret").open("w") as file:
        assert blackbox.open_of(os.getpid(), file.fileno()) is None
    assert blackbox.open_of(os.getpid(), 99_999) is None


def test_nobody_can_shorten_the_memory(box: BlackBox) -> None:
    """Writing to what was cut off would end the rank."""
    with pytest.raises(PermissionError):
        os.ftruncate(box.descriptor, 0)


# in a process group of one rank


def test_everything_is_put_back_as_it_was() -> None:
    """The class has the very same methods as before, and they work."""
    classes: list[Any] = [dist.ProcessGroup, dist.Work]
    before = [dict(vars(one)) for one in classes]
    probe = Observer().probes[Issued.name]
    probe.install()
    assert [dict(vars(one)) for one in classes] != before
    probe.uninstall()
    assert [dict(vars(one)) for one in classes] == before
    assert isinstance(probe, Issued)
    assert probe.box is not None
    probe.box.close()


@pytest.fixture(params=["gloo"])
def issued(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Issued]:
    store = torch._C._distributed_c10d.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group(request.param, store=store, rank=0, world_size=1)
    observer = Observer()
    probe = observer.probes[Issued.name]
    assert isinstance(probe, Issued)
    probe.install()
    try:
        yield probe
    finally:
        probe.stop()
        dist.all_reduce(four())
        dist.barrier()  # it has no tensor that a thread of gloo's would have to let go of
        time.sleep(0.05)
        dist.destroy_process_group()
        assert probe.box is not None
        probe.box.close()


def called(probe: Issued) -> list[Operation]:
    assert probe.box is not None
    return list(blackbox.operations(blackbox.read(contents(probe.box)), time.time_ns()))


def recorded() -> list[Operation]:
    entries = [one for dump in recorder.dumps() for one in recorder.read(dump)]
    return list(recorder.operations(entries, {}))


def four() -> torch.Tensor:
    return torch.ones(4)


CALLS: dict[str, Callable[[], Any]] = {
    "all_reduce": lambda: dist.all_reduce(four()),
    "scalar": lambda: dist.all_reduce(torch.tensor(3)),
    "broadcast": lambda: dist.broadcast(torch.ones(2, 3, dtype=torch.int64), 0),
    "reduce": lambda: dist.reduce(four().to(torch.bfloat16), 0),
    "all_gather": lambda: dist.all_gather([four()], four()),
    "into_tensor": lambda: dist.all_gather_into_tensor(four(), four()),
    "reduce_scatter": lambda: dist.reduce_scatter_tensor(four(), four()),
    "gather": lambda: dist.gather(four(), [four()], 0),
    "scatter": lambda: dist.scatter(four(), [four()], 0),
    "all_to_all": lambda: dist.all_to_all([four()], [four()]),
    "barrier": lambda: dist.barrier(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_call_is_written_in_the_recorders_own_words(issued: Issued, call: str) -> None:
    """So that what a dead rank called compares with what the others' recorders have."""
    CALLS[call]()
    (note,) = called(issued)
    entry = recorded()[-1]
    fields = ("group", "seq", "name", "sizes", "dtype")
    assert [getattr(note, one) for one in fields] == [getattr(entry, one) for one in fields]
    assert note.source.startswith("test_issued.py:")
    assert issued.sources()[(entry.group, entry.seq)] == note.source


@pytest.mark.parametrize("issued", ["cpu:gloo", None], indirect=True)
def test_a_group_of_several_backends_is_called_by_that_of_the_tensors(issued: Issued) -> None:
    """As the recorder does."""
    dist.all_reduce(four())
    assert called(issued)[-1].name == recorded()[-1].name == "gloo:all_reduce"


def test_the_line_that_calls_is_the_users(issued: Issued) -> None:
    """Not that of torch's own helpers; each line of a user's helper is one of its own."""

    def helper(numbers: torch.Tensor) -> None:
        dist.all_reduce(numbers)

    def first() -> None:
        helper(four())
        dist.all_gather_object([None], {"a": 1})

    first()
    sources = [note.source.rsplit(" in ", 1)[1] for note in called(issued)]
    assert sources[0] == "helper"
    assert set(sources[1:]) == {"first"}


def test_what_torch_calls_on_its_own_account_is_not_noted(issued: Issued) -> None:
    """The recorder has it; the line would be torch's."""
    code = compile("dist.all_reduce(numbers)", str(torch.nn.__file__), "exec")
    exec(code, {"dist": dist, "numbers": four()})
    assert called(issued) == []


def test_a_probe_that_fails_disturbs_no_collective(
    issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is off, and that is reported once; the numbers are right."""

    def fails(*args: object) -> None:
        raise RuntimeError("no words")

    monkeypatch.setattr(signature, "name", fails)
    numbers = four()
    dist.all_reduce(numbers)
    dist.all_reduce(numbers)
    assert numbers.tolist() == [1.0] * 4
    assert not issued.on


def test_calls_after_the_observation_are_written_down_until_the_next_one(issued: Issued) -> None:
    """Where a rank that has left its loop waits is known from this alone."""
    issued.linger()
    issued.observer.uninstall()
    dist.barrier()
    assert called(issued)[-1].name == "gloo:barrier"
    another = Observer().probes[Issued.name]
    another.install()
    try:
        dist.all_reduce(four())
        assert called(issued)[-1].name == "gloo:barrier"
    finally:
        another.uninstall()
        assert isinstance(another, Issued)
        assert another.box is not None
        another.box.close()


def test_where_the_rank_went_on_stands_among_its_calls(issued: Issued) -> None:
    """Once a step for its first forward and its first backward, however many microbatches; and
    nothing of it among the calls that a rank tells of itself."""
    model, observer = torch.nn.Linear(4, 1), issued.observer
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    observer.watch(model, optimizer)
    issued.uninstall()
    observer.install()
    try:
        for step in range(3):
            dist.all_reduce(four())
            for _ in range(3):
                model(four()).backward()
            optimizer.step()
            if step == 1:
                model(four()).backward()  # with no call before it
                optimizer.step()
        assert issued.box is not None
        names = [call.what.name for call in blackbox.read(contents(issued.box))]
    finally:
        observer.uninstall()
    a_step = ["gloo:all_reduce", "went_on", "went_on"]
    assert names == [*a_step, *a_step, "went_on", "went_on", *a_step]
    assert {call.what.group for call in issued.calls()} == {"0"}


def test_a_box_that_fails_switches_off_no_other_probe(issued: Issued) -> None:
    """Phases are noted by others, who only say on the way that training goes on."""
    dist.all_reduce(four())
    model, observer = torch.nn.Linear(4, 1), issued.observer
    observer.watch(model, None)
    assert issued.box is not None
    whole, issued.box = issued.box, BlackBox()
    issued.box.write(1, 1, encoded(what()))
    issued.box.close()
    observer.going_on = issued.box.went_on
    try:
        model(four()).backward()
        assert not issued.on
        assert observer.probes["modules"].on
    finally:
        issued.box = whole
        observer.uninstall()


def test_an_end_in_order_outlives_the_rank(box: BlackBox) -> None:
    """It is the one word that tells an early exit from an end, should the goodbye be lost."""
    assert not blackbox.finished(contents(box))
    box.write(1, 1, encoded(what()))
    box.finish()
    assert blackbox.finished(contents(box))
    assert [call.seq for call in blackbox.read(contents(box))] == [1]
    assert not blackbox.finished(b"")


def test_a_process_that_is_observed_anew_has_not_ended() -> None:
    """What its first observation left is taken back, for that is what its sentinel may read."""
    first, second = (Observer().probes[Issued.name] for _ in range(2))
    assert isinstance(first, Issued)
    assert isinstance(second, Issued)
    try:
        first.install()
        assert first.box is not None
        first.finished("exception")
        assert not blackbox.finished(contents(first.box))
        first.finished("finished")
        first.uninstall()
        assert blackbox.finished(contents(first.box))
        second.install()
        assert not blackbox.finished(contents(first.box))
    finally:
        for probe in (first, second):
            probe.uninstall()
            if probe.box is not None:
                probe.box.close()


class Finished(dist.Work):
    def wait(self, timeout: Any = None) -> bool:
        return True


class Own(dist.ProcessGroup):
    """A group of a user's own, written in Python, of which C++ calls what is written here."""

    def __init__(self) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]
        self.reduced = 0

    def getBackendName(self) -> str:
        return "own"

    def allreduce(self, tensors: Any, options: Any = None) -> Finished:  # type: ignore[override]
        self.reduced += 1
        return Finished()


def test_groups_written_in_python_work_as_before() -> None:
    """What they override is theirs; what they do not ends where it ended, and does not go round."""
    said: list[list[object]] = []
    for watched in (False, True):
        probe = Observer().probes[Issued.name]
        if watched:
            probe.install()
        group: Any = Own()
        outcomes: list[object] = [group.allreduce([four()]).wait(), group.reduced]
        for call in (
            group.barrier,
            functools.partial(group.broadcast, four(), 0),
            Finished().get_future,
        ):
            with pytest.raises(RuntimeError) as raised:
                call()
            outcomes.append(str(raised.value).splitlines()[0])
        said.append(outcomes)
        probe.uninstall()
        assert probe.on
    assert said[0] == said[1]


RANK = """
import os, sys
from rankscope.agent.evidence.blackbox import BlackBox, Written, encoded
box = BlackBox()
for seq in range(1, 50):
    words = ("0", "gloo:all_reduce", f"[{seq}] -> [{seq}]", "float64", "train.py:9 in main")
    box.write(0, seq, encoded(Written(*words)))
print(box.descriptor, flush=True)
sys.stdin.readline()
if sys.argv[1] == "abort":
    os.abort()
if sys.argv[1] == "fine":
    box.finish()
"""


@pytest.mark.processes
@pytest.mark.parametrize("ending", ["abort", "fine", "early"])
def test_the_sentinel_tells_what_an_aborted_rank_had_called(tmp_path: Path, ending: str) -> None:
    """After its end; of a rank that ended in order there is nothing to tell."""
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        subprocess.Popen(
            [sys.executable, "-c", RANK, ending],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as rank,
        sentinel(directory, hub.endpoint, hub.key),
    ):
        assert rank.stdout is not None
        box, started_s = int(rank.stdout.readline()), start_time_s(rank.pid)
        assert started_s is not None
        nodedir.register(directory, nodedir.Registration(rank.pid, started_s, 0, 1, box))
        hub.wait_for_state(1, "alive")
        rank.communicate("\n")
        death = hub.wait_for_death(1)
        assert death.signal == (signal.SIGABRT if ending == "abort" else None)
        assert death.finished == (ending == "fine")
        if ending == "abort":
            hub.wait_for(lambda: hub.all(ForeignStacks))
        count = len(hub.reports())
        hub.wait_for(lambda: len(hub.reports()) > count + 1)
        told = hub.all(ForeignStacks)
        assert len(told) == (1 if ending == "abort" else 0)
        for one in told:
            assert (one.rank, one.pid, one.threads, one.error) == (1, rank.pid, (), "")
            assert [o.sizes for o in one.operations[-2:]] == ["[48] -> [48]", "[49] -> [49]"]
            assert one.operations[-1].source == "train.py:9 in main"
