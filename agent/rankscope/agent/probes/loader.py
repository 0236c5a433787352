"""The wait for data: ``Agent.batches``, and torch's own DataLoader where that is not used."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from torch.utils.data import dataloader

from rankscope.agent import events
from rankscope.agent.probes.base import Probe

Batch = TypeVar("Batch")


class Loader(Probe):
    name: ClassVar[str] = "loader"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_end")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.begin = observer.guard(self, self.on_begin)
        self.end = observer.guard(self, self.on_end)
        self._note = observer.noted.append
        self._wrapper: Any = None
        self._original: Any = None

    def install(self) -> None:
        original = dataloader._BaseDataLoaderIter.__next__
        begin, end = self.begin, self.end

        def __next__(iterator: Any) -> Any:
            begin()
            try:
                return original(iterator)
            finally:
                end()

        self._original, self._wrapper = original, __next__
        dataloader._BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign,assignment]

    def uninstall(self) -> None:
        if self._wrapper is not None and dataloader._BaseDataLoaderIter.__next__ is self._wrapper:
            dataloader._BaseDataLoaderIter.__next__ = self._original  # type: ignore[method-assign]
        self._wrapper = self._original = None

    def on_begin(self, now: float) -> None:
        self._note((events.BEGIN_DATA, now))

    def on_end(self, now: float) -> None:
        self._note((events.END_DATA, now))


class Batches(Generic[Batch]):
    """``loader``, with the wait for each batch timed. As re-iterable and as long as ``loader``."""

    def __init__(self, loader: Iterable[Batch], probe: Loader) -> None:
        self._loader = loader
        self._probe = probe

    def __iter__(self) -> Iterator[Batch]:
        self._probe.begin()
        try:
            return _TimedIterator(iter(self._loader), self._probe)
        finally:
            self._probe.end()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as with the loader itself


class _TimedIterator(Generic[Batch]):
    """Hands a batch on without keeping it alive, as a generator's frame would."""

    def __init__(self, iterator: Iterator[Batch], probe: Loader) -> None:
        self._iterator = iterator
        self._probe = probe

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._probe.begin()
        try:
            return next(self._iterator)
        finally:
            self._probe.end()
