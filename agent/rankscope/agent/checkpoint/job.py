"""One save, as the thread of one rank goes through it."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankscope.agent import switch
from rankscope.agent.checkpoint import hands, publish
from rankscope.agent.checkpoint.gather import Path as StatePath
from rankscope.agent.checkpoint.meeting import Failed, Meeting, Outcome
from rankscope.agent.checkpoint.packing import packed
from rankscope.agent.checkpoint.progress import Progress
from rankscope.agent.checkpoint.staging import Staged
from rankscope.agent.checkpoint.writing import Written, write, write_small
from rankscope.protocol import coverage, crc
from rankscope.protocol.checkpoints import directory_name
from rankscope.protocol.manifest import FORMAT, Receipt, data_name, encode, receipt_name


class Saved(NamedTuple):
    """What this rank has copied at the boundary."""

    staged: Staged
    objects: Mapping[str, Any]
    alike: dict[str, int]
    layout: int
    paths: dict[str, StatePath]
    notes: dict[str, str]
    parameters: set[str]
    """Names of the tensors of which it is asked whether they are finite."""


class Job:
    """Made on the training thread, run in another. ``meet`` is called in that other one."""

    def __init__(
        self,
        directory: Path,
        step: int,
        request: int,
        rank: int,
        world_size: int,
        meet: Callable[[], Meeting],
        cancelled: threading.Event,
    ) -> None:
        self.directory = directory
        self.step, self.request = step, request
        self.rank, self.world_size = rank, world_size
        self.saved: Saved | None = None
        self.refused = ""
        """Why the state could not be copied."""
        self.cancelled = cancelled
        self.hurry = threading.Event()
        """Training waits for it: nobody need give way."""
        self.written = threading.Event()
        """Nothing is read from the copied state any more."""
        self.on_phase: Callable[[str, int], None] = lambda phase, step: None
        self._meet = meet
        self.progress = Progress()
        self._folder: Path | None = None
        self._phase = "staging"

    def run(self) -> Outcome:
        """Take part in the save to its end; never raises."""
        meeting = None
        ended = threading.Event()
        pulse = None
        try:
            meeting = self._meet()
            meeting.phase = self._phase
            meeting.begin()
            pulse = threading.Thread(target=self._pulse, args=(meeting, ended), daemon=True)
            pulse.start()
            return self._take_part(meeting)
        except Exception as error:  # noqa: BLE001 - a save that fails must not fail the run
            return self._give_up(meeting, error)
        finally:
            self.written.set()
            ended.set()
            if pulse is not None:
                pulse.join()

    def decline(self, text: str) -> None:
        """Tell the others that this rank takes no part."""
        with contextlib.suppress(Exception):
            self._meet().fail(Failed(text, self.rank, "staging"))

    def _take_part(self, meeting: Meeting) -> Outcome:
        if self.saved is None:
            text = f"rank {self.rank}, staging: {self.refused}"
            raise Failed(text, self.rank, "staging")
        if self.rank == 0:
            for left in publish.leftovers(self.directory, None):
                publish.remove(left)
            name = directory_name(self.step)
            self._folder = folder = publish.make_folder(self.directory, name)
            meeting.open(folder.name)
        else:
            self._enter("waiting", meeting)
            folder = self.directory / meeting.folder()
        self._write(meeting, folder, self.saved)
        self._enter("publishing", meeting)
        if self.rank != 0:
            return meeting.outcome()
        receipts = publish.receipts_of(folder, meeting.arrivals())
        serial = publish.next_serial(self.directory)
        manifest = publish.assemble(folder, receipts, serial, self.saved.paths)
        publish.complete(folder, manifest)
        if self.cancelled.is_set():  # until it is published it can be given up
            raise Failed("cancelled")
        path, unlinked = publish.reveal(folder, self.directory, self.step)
        size_bytes = sum(file.size_bytes for file in manifest.files)
        text = f"checkpoint of step {self.step} is complete: {path}"
        notfinite = coverage.notfinite_text(manifest.notfinite)
        for more in filter(None, (notfinite, unlinked)):
            text += f"; {more}"
        outcome = Outcome(
            True, self.step, self.request, str(path), text, size_bytes, notfinite=notfinite
        )
        with contextlib.suppress(Exception):  # whoever does not hear of it finds it on the disk
            meeting.announce(outcome)
        return outcome

    def _write(self, meeting: Meeting, folder: Path, saved: Saved) -> None:
        objects = {name: packed(name, value) for name, value in saved.objects.items()}
        staged = saved.staged
        self.progress.expect(staged.size_bytes)
        self._enter("writing", meeting)
        name = data_name(self.rank)
        with hands.hand(staged, self.cancelled, self.hurry) as hand:
            written = write(
                folder,
                name,
                self.rank,
                staged.copies,
                hand,
                objects,
                self._advance,
                saved.parameters,
            )
            self.written.set()
            self._enter("syncing", meeting)
            hand.sync(folder / name)
        receipt = encode(self._receipt(saved, written))
        write_small(folder, receipt_name(self.rank), receipt)
        meeting.arrive(len(receipt), crc.crc32(receipt))

    def _receipt(self, saved: Saved, written: Written) -> Receipt:
        return Receipt(
            format=FORMAT,
            request=self.request,
            step=self.step,
            rank=self.rank,
            world_size=self.world_size,
            layout=saved.layout,
            alike=saved.alike,
            file=written.file,
            tensors=written.tensors,
            objects=written.objects,
            notes=saved.notes,
            notfinite=written.notfinite,
        )

    def _give_up(self, meeting: Meeting | None, error: Exception) -> Outcome:
        if isinstance(error, Failed):
            failed = error
        else:
            text = f"rank {self.rank}, {self._phase}: {in_words(error)}"
            failed = Failed(text, self.rank, self._phase)
        with contextlib.suppress(Exception):
            if meeting is not None:
                failed = meeting.fail(failed)
        outcome = Outcome(
            False, self.step, self.request, "", str(failed), 0, failed.rank, failed.phase
        )
        with contextlib.suppress(Exception):
            if meeting is not None and self.rank == 0:
                meeting.announce(outcome)
        if self._folder is not None:
            publish.remove(self._folder)
        return outcome

    def _enter(self, phase: str, meeting: Meeting) -> None:
        self._phase = meeting.phase = phase
        self.progress.enter(phase)
        self.on_phase(phase, self.step)

    def _advance(self, count_bytes: int) -> None:
        self.progress.advance(count_bytes)
        if self.cancelled.is_set():
            raise Failed("cancelled")

    @staticmethod
    def _pulse(meeting: Meeting, ended: threading.Event) -> None:
        with contextlib.suppress(Exception):  # without a store the save fails by itself
            while not ended.wait(meeting.pulse_s):
                meeting.pulse()


def in_words(error: Exception) -> str:
    """``error`` on one line; of the system's errors what went wrong and with which file."""
    text = switch.one_line(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    # As it may come to a terminal: nothing in it that a terminal would act on.
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
