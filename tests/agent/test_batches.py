"""What ``Agent.batches`` returns can be used as the loader itself, whatever the loader is."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from rankscope.agent import events
from rankscope.agent.probes.batches import timed
from support.observed import observed


class Own:
    """A loader of the user's, with attributes of its own."""

    epoch = 0

    def __init__(self, count: int = 3) -> None:
        self.count = count

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: Any) -> bool:
        return self.count == getattr(other, "count", None)


class Indexed:
    """Iterable by its indices alone."""

    def __getitem__(self, index: int) -> int:
        if index > 2:
            raise IndexError
        return index


class Kind(DataLoader[Any]):
    """A DataLoader of the user's."""


def data() -> Any:
    return torch.arange(6.0).reshape(3, 2)


LOADERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [0, 1, 2],
    "empty": list,
    "dict": lambda: {0: "a", 1: "b"},
    "generator": lambda: (x for x in range(3)),
    "iterator": lambda: iter([0, 1, 2]),
    "zip": lambda: zip(range(3), range(3), strict=True),
    "own": Own,
    "indexed": Indexed,
    "DataLoader": lambda: DataLoader(data(), batch_size=2),
    "its iterator": lambda: iter(DataLoader(data(), batch_size=2)),
    "a DataLoader of one's own": lambda: Kind(data(), batch_size=2),
    "number": lambda: 5,
    "nothing": lambda: None,
}

USES: dict[str, Callable[[Any], Any]] = {
    "for": lambda x: [str(one) for one in x],
    "twice": lambda x: [str(one) for one in (*x, *x)],
    "iter is itself": lambda x: iter(x) is x,
    "next": lambda x: str(next(x)),
    "next of iter": lambda x: str(next(iter(x))),
    "len": len,
    "bool": bool,
    "index": lambda x: str(x[0]),
    "in": lambda x: 1 in x,
    "reversed": lambda x: list(reversed(x)),
    "enumerate": lambda x: [i for i, _ in enumerate(x)],
    "attributes": lambda x: (x.batch_size, x.dataset.shape, type(x.sampler).__name__),
    "set": lambda x: (x.set_epoch(3), x.__setattr__("more", 1), x.epoch, x.more, x.count),
    "send": lambda x: (next(x), x.send(None), x.close()),
    "isinstance": lambda x: [
        isinstance(x, kind) for kind in (list, Iterable, Iterator, DataLoader, Own, Kind, int)
    ],
    "class": lambda x: x.__class__,
    "deepcopy": lambda x: (type(copy.deepcopy(x)), len(copy.deepcopy(x))),
    "copy": lambda x: (type(copy.copy(x)), len(copy.copy(x))),
    "pickle": lambda x: (type(pickle.loads(pickle.dumps(x))), len(pickle.loads(pickle.dumps(x)))),
    "hash": lambda x: isinstance(hash(x), int),
    "equal": lambda x: (x == x, x != x, x == [0, 1, 2], x == Own()),
    "add": lambda x: len(x.__add__([1])),
    "missing": lambda x: x.no_such_thing,
}


def outcome(use: Callable[[Any], Any], loader: Any) -> Any:
    """What comes of it: the answer, or the exception with its text."""
    try:
        return use(loader)
    except Exception as error:  # noqa: BLE001 - it is the outcome
        return type(error), str(error).split(" at 0x")[0]


@pytest.mark.parametrize("use", list(USES))
@pytest.mark.parametrize("kind", list(LOADERS))
def test_a_use_has_the_same_outcome_with_and_without(kind: str, use: str) -> None:
    """Answers and errors of every use are those of the loader itself."""
    torch.manual_seed(0)
    expected = outcome(USES[use], LOADERS[kind]())
    with observed() as seen:
        torch.manual_seed(0)
        got = outcome(USES[use], timed(LOADERS[kind](), seen.observer.loader))
        assert seen.faults == []
    assert got == expected


@pytest.mark.parametrize("kind", ["list", "generator", "own", "DataLoader", "its iterator"])
def test_each_wait_is_timed(kind: str) -> None:
    """As many waits as batches, and each begins and ends."""
    with observed() as seen:
        loader = timed(LOADERS[kind](), seen.observer.loader)
        seen.observer.noted.clear()
        count = sum(1 for _ in loader)
        codes = [event[0] for event in seen.observer.noted]
    assert codes.count(events.BEGIN_DATA) == codes.count(events.END_DATA) > count


def test_no_batch_is_kept_alive_and_errors_pass() -> None:
    """A batch is freed as soon as the loop lets go of it; the loader's exception is its own."""

    class Batch:
        pass

    with observed() as seen:
        stream = timed((Batch() for _ in range(2)), seen.observer.loader)
        first = weakref.ref(next(stream))
        gc.collect()
        assert first() is None
        with pytest.raises(ZeroDivisionError):
            list(timed((1 // 0 for _ in range(1)), seen.observer.loader))
