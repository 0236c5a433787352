"""The wait for data, of torch's own DataLoader. Other loaders: ``batches``."""

from typing import Any, ClassVar

from torch.utils.data import dataloader

from rankscope.agent import events
from rankscope.agent.probes.base import Probe


class Loader(Probe):
    name: ClassVar[str] = "loader"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_end", "on_over")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.begin = observer.guard(self, self.on_begin)
        self.end = observer.guard(self, self.on_end)
        self.over = observer.guard(self, self.on_over)
        self._note = observer.noted.append
        self._wrapper: Any = None
        self._original: Any = None
        self._iter: Any = None
        self._original_iter: Any = None

    def install(self) -> None:
        original = dataloader._BaseDataLoaderIter.__next__
        begin, end, over = self.begin, self.end, self.over

        def __next__(iterator: Any) -> Any:
            begin()
            try:
                return original(iterator)
            except StopIteration:
                over()
                raise
            finally:
                end()

        original_iter = dataloader.DataLoader.__iter__

        def __iter__(loader: Any) -> Any:
            begin()  # starting the workers is a wait as well
            try:
                return original_iter(loader)
            finally:
                end()

        self._original_iter, self._iter = original_iter, __iter__
        dataloader.DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
        self._original, self._wrapper = original, __next__
        dataloader._BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign,assignment]

    def uninstall(self) -> None:
        if self._wrapper is not None and dataloader._BaseDataLoaderIter.__next__ is self._wrapper:
            dataloader._BaseDataLoaderIter.__next__ = self._original  # type: ignore[method-assign]
        if self._iter is not None and dataloader.DataLoader.__iter__ is self._iter:
            dataloader.DataLoader.__iter__ = self._original_iter  # type: ignore[method-assign]
        self._wrapper = self._original = self._iter = self._original_iter = None

    def on_begin(self, now: float) -> None:
        self._note((events.BEGIN_DATA, now))

    def on_end(self, now: float) -> None:
        self._note((events.END_DATA, now))

    def on_over(self, now: float) -> None:
        self._note((events.DATA_OVER, now))
