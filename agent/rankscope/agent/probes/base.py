"""What a probe is."""

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rankscope.agent.observer import Observer


class Probe:
    """One thing that is observed. It is installed once, and told of each model and optimizer.

    Everything it does inside training runs as a *guarded* method, made by
    :meth:`Observer.guard`: when one raises, the probe is off for good, the fault is reported once,
    and training goes on. ``guarded`` names those methods, so that a test can make each one fail.
    """

    name: ClassVar[str]
    guarded: ClassVar[tuple[str, ...]] = ()
    numbers: ClassVar[bool] = False
    """Whether it looks at what tensors hold: then its time is counted with the kernels', whose
    share of a step it has to keep to, and not as bookkeeping."""

    # What is touched at every step lies together: a probe that has such adds it to these.
    __slots__ = ("__dict__", "observer", "on")

    def __init__(self, observer: "Observer") -> None:
        self.observer = observer
        self.on = True

    def install(self) -> None:
        """Place what is placed once in a process. Called again after :meth:`uninstall`."""

    def watch_model(self, model: Any, *, first: bool) -> None:
        """Place what belongs to one model; the ``first`` one counts the microbatches."""

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        """Place what belongs to one optimizer; the ``first`` one marks the steps."""

    def tidy(self) -> None:
        """A model or an optimizer that was watched is gone: keep nothing that was for it."""

    def uninstall(self) -> None:
        """Take everything away again; what was ours and is not any more is left alone."""
