"""Saving the state of a run, on all its ranks, while it goes on."""

import copy
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch.distributed as dist

from rankscope.agent import goneon, identity, switch
from rankscope.agent.checkpoint import generators, resume, retention, stores
from rankscope.agent.checkpoint.gather import OWN, gather, own_buffer, own_name
from rankscope.agent.checkpoint.gather import Path as StatePath
from rankscope.agent.checkpoint.job import Job, Saved, in_words
from rankscope.agent.checkpoint.meeting import SILENT_S, Meeting, Outcome
from rankscope.agent.checkpoint.plan import plan
from rankscope.agent.checkpoint.progress import Progress, Snapshot
from rankscope.agent.checkpoint.staging import Stager
from rankscope.protocol.exits import UserError
from rankscope.protocol.resumed import Resumed as Loaded

log = logging.getLogger("rankscope")

TIMEOUT_S = 600.0
"""The longest that a save may take, from the boundary to its publication."""

_ordinals = itertools.count()


class Checkpointer:
    """Saves ``state`` into ``dir``, on all ranks of the default process group or of one process.

    ``state`` are the things that make up the run, by name: models and optimizers, and whatever has
    ``state_dict()`` and ``load_state_dict()``. All ranks hold them alike, whole or sharded; what
    each rank has for itself goes into ``per_rank``. The random number generators are always among
    that.

    A save is a call of every rank at the same boundary, after an update and before the next: of
    :meth:`end_step` each ``every`` steps, of :meth:`save`, or by ``attach(…, checkpoint=saver)``
    when an operator asks. The state is copied there; the rest happens in a thread. With ``sync``
    the call returns when it is done. Nothing that goes wrong in a save is raised: it is in
    :attr:`last`, and training goes on.

    Of the checkpoints that nobody asked for the newest ``keep`` verified ones are kept (None: all).
    ``notes`` (strings) are kept with each checkpoint. A save is given up when it is not done after
    ``timeout_s``, or when a rank that takes part says nothing for ``silent_s``.

    Raises :class:`UserError` for a directory that cannot be written to and for things without a
    state.
    """

    def __init__(
        self,
        *,
        state: Mapping[str, Any],
        dir: str | os.PathLike[str],
        per_rank: Mapping[str, Any] | None = None,
        every: int = 0,
        keep: int | None = None,
        sync: bool = False,
        notes: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self.directory = Path(dir).absolute()
        self.every, self.keep, self.sync = every, keep, sync
        self.timeout_s, self.silent_s = timeout_s, silent_s
        self.last: Outcome | None = None
        """What came of the newest save that has ended."""
        self.on_phase: list[Callable[[str, int], None]] = []
        """Called with each phase and the step that is saved: in the training thread for
        ``staging``, in the saving one for the others. What they raise fails the save."""
        self.on_outcome: list[Callable[[Outcome], None]] = []
        self._state, self._per_rank = dict(state), dict(per_rank or {})
        self._notes = dict(notes or {})
        self._progress = Progress()
        """Of the oldest save that has not ended; the next one may be copied already."""
        self._stager = Stager()
        self._ordinal = next(_ordinals)
        self._resumes = 0
        self._store_lock = threading.Lock()
        self._store: Any = None
        self._retention = retention.Retention(self.directory, keep)
        self._jobs: list[Job] = []
        """That have not ended: one, and perhaps the next one, which waits for it."""
        self._thread: threading.Thread | None = None
        self._begun: set[tuple[int, int]] = set()
        reserved = {"rank"} & (self._state.keys() | self._per_rank.keys())
        if reserved or "random" in self._per_rank:
            raise UserError(f"a checkpoint has a {'random' if not reserved else 'rank'} of its own")
        for name, thing in (*self._state.items(), *self._per_rank.items()):
            if not callable(getattr(thing, "state_dict", None)):
                raise UserError(
                    f"{name} is a {type(thing).__name__}, which has no state_dict(); give what has "
                    "one, such as a model, an optimizer or a scheduler"
                )
        check_directory(self.directory)

    # what a loop calls

    def end_step(self, step: int) -> None:
        """Step ``step`` has ended: save it when it is one of every ``every``."""
        if self.every and step % self.every == 0:
            self.save(step)

    def save(self, step: int, request: int = 0) -> Outcome | None:
        """Save what the state is now, as that of step ``step``.

        To be called by every rank, with the same numbers. Returns what came of it when ``sync``;
        else None, and :meth:`wait` knows more.
        """
        try:
            self._begin(step, request)
        except Exception as error:
            if switch.is_users(error):
                raise
            self._tell(Outcome(False, step, request, "", in_words(error)))
        return self.wait() if self.sync else None

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """What came of the newest save, once it has ended; None when none has after that time.

        To be called before the process ends, or what is being written is lost.
        """
        thread = self._thread
        if thread is not None:
            self.hurry()
            thread.join(self.timeout_s + 60.0 if timeout_s is None else timeout_s)
            if thread.is_alive():
                return None
        return self.last

    def hurry(self) -> None:
        """The save in work need not give way to training any more: training waits for it."""
        for job in tuple(self._jobs):
            job.hurry.set()

    def cancel(self, request: int | None = None) -> None:
        """Give the save in work up, on all ranks; or only the one for ``request``, if it is."""
        for job in tuple(self._jobs):
            if request is None or job.request == request:
                job.cancelled.set()

    def progress(self) -> Snapshot:
        return self._progress.read()

    @property
    def saving(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def resume(self, which: str | os.PathLike[str] = "auto") -> "resume.Resumed | None":
        """Load the newest verified checkpoint (``auto``), or the one in directory ``which``.

        To be called by every rank, before ``attach``. None when ``auto`` finds none; what was
        passed over is in the result, or in the log. Raises :class:`UserError`, on every rank, for
        a checkpoint that is not whole or not of this state.
        """
        rank, world_size = place()
        self._resumes += 1
        prefix = self.prefix(f"resume/{self._resumes}")
        circle = stores.Circle(self._kept_store(world_size), prefix, rank, world_size)
        found = resume.resume(circle, self.directory, str(which), self._state, self._per_rank)
        if found is not None:
            goneon.loaded(Loaded(found.step, found.path, found.notfinite))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Waits for the save in work, unless an exception ends the block."""
        if error is None:
            self.wait()

    def decline(self, step: int, request: int, text: str) -> None:
        """This rank takes no part in the save for ``request``: the others need not wait for it."""
        rank, world_size = place()
        job = self._new_job(step, request, rank, world_size, threading.Event())
        threading.Thread(target=job.decline, args=(text,), daemon=True).start()
        self._tell(Outcome(False, step, request, "", text, 0, rank, "staging"))

    # inside

    def _begin(self, step: int, request: int) -> None:
        if (step, request) in self._begun:
            return  # twice at one boundary
        self._begun.add((step, request))
        rank, world_size = place()
        previous = self._thread if self.saving else None
        jobs = tuple(self._jobs)  # one that ends meanwhile must hide none behind it
        unwritten = next((job for job in jobs if not job.written.is_set()), None)
        if unwritten is not None:
            text = f"rank {rank} was still writing the checkpoint of step {unwritten.step}"
            self.decline(step, request, text)
            return
        job = self._new_job(step, request, rank, world_size, threading.Event())
        job.progress.begin(step, request)
        if previous is None:
            self._progress = job.progress
        try:
            self._on_phase("staging", step)
            job.saved = self._copy(rank, world_size)
        except Exception as error:
            if switch.is_users(error):
                raise
            job.refused = in_words(error)
        self._jobs.append(job)
        self._thread = threading.Thread(
            target=self._run, args=(job, previous), name="rankscope-save", daemon=True
        )
        self._thread.start()

    def _new_job(
        self, step: int, request: int, rank: int, world_size: int, cancelled: threading.Event
    ) -> Job:
        key = self.prefix(f"save/{f'request-{request}' if request else step}")
        deadline_s = time.monotonic() + self.timeout_s

        def meet() -> Meeting:
            return Meeting(
                self._kept_store(world_size),
                key,
                rank,
                world_size,
                deadline_s,
                cancelled,
                self.silent_s,
                step,
                self.prefix("save"),
            )

        job = Job(self.directory, step, request, rank, world_size, meet, cancelled)
        job.on_phase = self._on_phase
        return job

    def _copy(self, rank: int, world_size: int) -> Saved:
        gathered = gather(self._state)
        own = {"random": generators.state()}
        own |= {name: thing.state_dict() for name, thing in self._per_rank.items()}
        objects = {own_name(rank, name): value for name, value in own.items()}
        if rank == 0:
            objects |= gathered.objects
            for other in range(world_size):
                paths: dict[str, StatePath] = {
                    own_name(other, name): (OWN, str(other), name) for name in own
                }
                paths |= {
                    own_buffer(other, name): (OWN, str(other), "buffers", name)
                    for name in gathered.buffers
                }
                gathered.paths.update(paths)
        staged = self._stager.stage(plan(gathered.tensors, gathered.buffers, rank, world_size))
        # Nobody else has the state of the generators, which is long.
        own_alone = own_name(rank, "random")
        memo: dict[int, Any] = {}
        copied = {
            name: value if name == own_alone else copy.deepcopy(value, memo)
            for name, value in objects.items()
        }
        return Saved(
            staged,
            copied,
            gathered.alike,
            gathered.layout,
            gathered.paths,
            self._notes,
            gathered.parameters,
        )

    def _run(self, job: Job, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
            self._progress = job.progress
        outcome = job.run()
        if outcome.ok and job.rank == 0:
            self._retention.published(Path(outcome.path))
        self._jobs.remove(job)
        self._tell(outcome)  # first: whoever sees that it is over asks what came of it
        job.progress.enter("done" if outcome.ok else "failed", outcome.text)

    def _on_phase(self, phase: str, step: int) -> None:
        for told in self.on_phase:
            told(phase, step)

    def _tell(self, outcome: Outcome) -> None:
        self.last = outcome
        if outcome.ok:
            log.log(
                logging.WARNING if outcome.notfinite else logging.INFO,
                "rankscope: %s",
                outcome.text,
            )
        else:
            log.warning(
                "rankscope: no checkpoint of step %d: %s; training goes on",
                outcome.step,
                outcome.text,
            )
        for told in self.on_outcome:
            switch.contained(lambda told=told: told(outcome))  # type: ignore[misc]

    def store(self) -> Any:
        """The ranks' store, for what else they have to agree on. Not for the training thread."""
        return self._kept_store(place()[1])

    def _kept_store(self, world_size: int) -> Any:
        with self._store_lock:
            if self._store is None:
                self._store = stores.shared() if world_size > 1 else stores.alone()
            return self._store

    def prefix(self, what: str) -> str:
        """Keys below it are this checkpointer's, on all ranks.

        A launcher's store may outlive the ranks it restarts: what those before had to say to each
        other is not for these.
        """
        return f"rankscope/checkpoint/{identity.life()}/{self._ordinal}/{what}"


def place() -> tuple[int, int]:
    """Rank and world size: of the default process group, or of a process alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def check_directory(directory: Path) -> None:
    """Make ``directory``. Raises :class:`UserError` when nothing can be written there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{directory} is a file; name a directory for checkpoints") from None
    except NotADirectoryError:
        raise UserError(f"{directory} is below a file; name a directory for checkpoints") from None
    except (OSError, ValueError) as error:  # a name may have a zero byte in it
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot make {str(directory)!r} for checkpoints: {why}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {directory}; name another directory for checkpoints")
