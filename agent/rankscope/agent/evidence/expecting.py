"""What may take long just now, and is no hang: as declared, or as the training thread's stack says.

Nothing is hooked for it: a thread that has been in one phase for a while is looked at.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rankscope.agent.evidence.places import Place
from rankscope.protocol import limits

EVALUATION = "evaluation"
PAUSE = "pause"
"""An operator has the training thread stand still."""
EVALUATING_FORWARDS = 2
"""So many forwards under ``no_grad`` in a row are an evaluation; one may be a teacher's."""

_TELLING: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("/torch/_dynamo/convert_frame.py", (), "compilation"),
    ("/torch/_inductor/compile_fx.py", ("compile_fx", "codegen"), "compilation"),
    ("/torch/_inductor/async_compile.py", (), "compilation"),
    ("/torch/_functorch/_aot_autograd/", ("compile", "create_"), "compilation"),
    ("/torch/utils/cpp_extension.py", (), "compilation"),
    ("/torch/distributed/checkpoint/", (), "checkpoint"),
    ("/torch/serialization.py", ("save", "_save", "_legacy_save"), "checkpoint"),
    ("/torch/serialization.py", ("load", "_load", "_legacy_load"), "loading of a checkpoint"),
    ("/torch/utils/data/dataloader.py", ("__init__",), "start of the loader"),
    ("/torch/distributed/distributed_c10d.py", ("init_process_group",), "rendezvous"),
)
"""Part of a file's name, beginnings of function names (none: any), and what it means."""


class Expecting:
    """Of one process. Declared by the training thread, read by the sending thread."""

    def __init__(self) -> None:
        self._declared: list[str] = []
        self._evaluating = 0

    @contextmanager
    def declared(self, what: str) -> Iterator[None]:
        """``what`` is expected within; the innermost of several is told."""
        self._declared.append(what)
        try:
            yield
        finally:
            self.over(what)

    def over(self, what: str) -> None:
        """``what`` is not expected any more."""
        for index in range(len(self._declared) - 1, -1, -1):
            if self._declared[index] == what:
                del self._declared[index]
                return

    def forward(self, trains: bool) -> None:
        """A forward of the model that trains began; ``trains`` is False under ``no_grad``."""
        self._evaluating = 0 if trains else self._evaluating + 1

    def now(self, stack: Iterable[Place] = ()) -> str:
        """What is expected; ``stack`` is the training thread's, where that was looked at."""
        declared = list(self._declared)
        if declared:
            return declared[-1][: limits.MAX_NAME_CHARS]
        if self._evaluating >= EVALUATING_FORWARDS:
            return EVALUATION
        return told_by(stack)


def told_by(stack: Iterable[Place]) -> str:
    """What a stack says may take long; empty when nothing. The outermost such frame decides."""
    found = ""
    for file, _, function in stack:
        path = file.replace("\\", "/")
        for part, functions, what in _TELLING:
            if part in path and (not functions or function.startswith(functions)):
                found = what
    return found
