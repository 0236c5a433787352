"""Checkpoints of a trainer: what is in them, when they are saved, and going on from one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from rankscope.protocol.exits import UserError
from rankscope.trainers.config import Config
from rankscope.trainers.report import Report

if TYPE_CHECKING:
    from rankscope.agent.checkpoint import Checkpointer, Resumed


@dataclass
class Position:
    """Where in the data the run is: the same on every rank, and for every number of ranks."""

    epoch: int = 0
    seen: int = 0
    """Sequences of the epoch's order that all ranks together have trained on."""

    def enter(self, epoch: int) -> int:
        """Epoch ``epoch`` begins, or goes on; returns how many of its sequences are left out."""
        if epoch != self.epoch:
            self.epoch, self.seen = epoch, 0
        return self.seen

    def state_dict(self) -> dict[str, int]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.seen = int(state["epoch"]), int(state["seen"])


class Saving:
    """What the step loop calls; without ``--checkpoint-dir`` all of it does nothing."""

    def __init__(
        self, position: Position, saver: "Checkpointer | None", resumed: "Resumed | None"
    ) -> None:
        self.position = position
        self.checkpoint: object = saver
        """For ``attach``."""
        self.start_step = resumed.step if resumed is not None else 0
        self._saver = saver
        self._resumed = resumed

    def before_step(self) -> None:
        """The next window is at hand: whatever draws random numbers next is training."""
        if self._resumed is not None:
            self._resumed.restore_random()
            self._resumed = None

    def end_step(self, step: int) -> None:
        if self._saver is not None:
            self._saver.end_step(step)

    def wait(self) -> None:
        """Until the save in work has ended."""
        if self._saver is not None:
            self._saver.wait()


@contextmanager
def saving(
    config: Config,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: GradScaler,
    report: Report,
    order: str,
    phases: Sequence[Callable[[str, int], None]] = (),
) -> Iterator[Saving]:
    """The checkpoints of a run that begins here, or goes on. To be entered by all ranks together.

    It is left when the save in work has ended, unless by an exception. ``order`` is that of the
    data. ``phases`` are told each phase of a save and its step. Raises :class:`UserError` for a
    checkpoint that the run cannot go on from.
    """
    position = Position()
    if config.checkpoint_dir is None and config.resume is None:
        yield Saving(position, None, None)
        return
    from rankscope.agent.checkpoint import Checkpointer  # not even imported when nothing is saved

    things: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "scaler": scaler,
        "position": position,
    }
    notes = {"data": order}
    saver = Checkpointer(
        state=things,
        dir=config.checkpoint_dir or Path(config.resume or "").parent,
        every=config.checkpoint_every,
        keep=config.checkpoint_keep or None,
        sync=config.checkpoint_sync,
        notes=notes,
    )
    saver.on_phase.extend(phases)
    resumed = saver.resume(config.resume) if config.resume is not None else None
    if resumed is not None:
        check_data(resumed, notes["data"])
        for skipped in resumed.skipped:
            report.say(f"passed over {skipped}")
        inexact = "" if resumed.exact else f", saved by {resumed.world_size} ranks"
        report.say(f"going on after step {resumed.step} ({resumed.path}{inexact})")
        if resumed.notfinite:
            report.say(f"warning: {resumed.notfinite}")
    elif config.resume is not None:
        report.say(f"no checkpoint in {config.checkpoint_dir}: beginning at step 1")
    with saver:
        yield Saving(position, saver if config.checkpoint_dir is not None else None, resumed)


def check_data(resumed: "Resumed", data: str) -> None:
    """Raise :class:`UserError` when the run would not go on with the sequences it has not seen."""
    saved = resumed.notes.get("data", "")
    if saved != data:
        raise UserError(
            f"{resumed.path} was trained on other data ({saved or 'which is not known'}), this run "
            f"has {data}; use the same --text, --text-bytes, --seed, --seq-len and --eval-every"
        )
