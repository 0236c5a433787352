"""Which checkpoint a run goes on from, agreed on by its ranks, and the loading of it."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankscope.agent.checkpoint import generators
from rankscope.agent.checkpoint.gather import CannotSave, own_name
from rankscope.agent.checkpoint.load import CannotLoad, Source, load
from rankscope.agent.checkpoint.stores import Circle
from rankscope.protocol import checkpoints, coverage
from rankscope.protocol.exits import UserError
from rankscope.protocol.manifest import BadManifest, Manifest

log = logging.getLogger("rankscope")

AUTO = "auto"


class Resumed(NamedTuple):
    """What the run goes on from."""

    step: int
    path: str
    world_size: int
    """Of the run that saved it."""
    notes: dict[str, str]
    skipped: list[str]
    """Newer ones that were passed over, and why, in words."""
    exact: bool
    """Whether what each rank has for itself was loaded, too: it is for an equal number of ranks."""
    generators: dict[str, Any] | None
    notfinite: str = ""
    """What is in it that is not finite, in words; of one that was named it may be anything."""

    def restore_random(self) -> None:
        """Put this rank's random number generators back to where they were.

        To be called just before the first step, when the loader's iterator stands where it is to go
        on: making one draws numbers. Does nothing when another number of ranks saved them.
        """
        if self.generators is not None:
            generators.restore(self.generators)


def resume(
    circle: Circle,
    directory: Path,
    which: str,
    things: Mapping[str, Any],
    own: Mapping[str, Any],
) -> Resumed | None:
    """See :meth:`rankscope.agent.checkpoint.Checkpointer.resume`."""
    if which != AUTO:
        path = Path(which).absolute()
        agreed(circle, trouble_of(circle, path))
        return read(circle, path, things, own, [])
    skipped: list[str] = []
    for path in candidates(circle, directory, skipped):
        trouble = whole(circle.tell(trouble_of(circle, path)))
        if not trouble:
            others = [text for text in skipped if not text.startswith(f"{path.name}: ")]
            return read(circle, path, things, own, others)
        skipped.append(f"{path.name}: {trouble}")
    for text in skipped:
        log.warning("rankscope: passed over %s", text)
    return None


def candidates(circle: Circle, directory: Path, skipped: list[str]) -> list[Path]:
    """Those that rank 0 finds in ``directory``, the newest first; the others go to ``skipped``.

    One that holds NaN is none of them. One that holds Inf comes after all that are finite: where
    there are none of these, it is meant.
    """
    found, others = checkpoints.find(directory)
    usable = [one for one in found if not one.trouble and not one.spoilt]
    usable.sort(key=lambda one: one.notfinite != "")  # the order of equals stays
    names = [one.name for one in usable]
    told = [
        f"{one.name}: {one.trouble or one.notfinite}"
        for one in found
        if one.trouble or one.notfinite
    ]
    told += [f"{name}: not a checkpoint's name" for name in others]
    lines = circle.hear("\n".join([str(len(names)), *names, *told])).split("\n")
    count = int(lines[0])
    skipped.extend(lines[1 + count :])
    return [directory / name for name in lines[1 : 1 + count]]


def trouble_of(circle: Circle, path: Path) -> str:
    """What this rank finds wrong with the checkpoint; empty when nothing.

    Rank 0 looks at its structure; the bytes are shared out among the ranks.
    """
    try:
        checkpoints.refuse_none(path)
        manifest = checkpoints.read_manifest(path)
    except (UserError, BadManifest) as error:
        return str(error)
    problems: list[str] = []
    if circle.rank == 0:
        missing, wrong = checkpoints.structure(path, manifest)
        problems = missing + wrong
    if not problems:
        files = list(checkpoints.by_file(manifest).items())
        for name, places in files[circle.rank :: circle.world_size]:
            problems += checkpoints.damaged(path / name, places)
    return "; ".join(problems[:3])


def read(
    circle: Circle,
    path: Path,
    things: Mapping[str, Any],
    own: Mapping[str, Any],
    skipped: list[str],
) -> Resumed:
    """Load ``path`` on all ranks. Raises :class:`UserError` on all when one cannot."""
    manifest = None
    drawn: dict[str, Any] | None = None
    try:
        manifest = checkpoints.read_manifest(path)
        with Source(path) as source:
            load(source, manifest, things, circle.rank, circle.world_size)
            drawn = load_own(source, manifest, circle, own)
        trouble = ""
    except (CannotLoad, CannotSave, BadManifest) as error:
        trouble = str(error)
    except Exception as error:  # noqa: BLE001 - the others must hear of it, or they wait
        trouble = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    agreed(circle, trouble and f"cannot load {path}: {trouble}")
    assert manifest is not None
    return Resumed(
        manifest.step,
        str(path),
        manifest.world_size,
        manifest.notes,
        skipped,
        manifest.world_size == circle.world_size,
        drawn,
        coverage.notfinite_text(manifest.notfinite),
    )


def load_own(
    source: Source, manifest: Manifest, circle: Circle, own: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What this rank had for itself, where as many ranks saved it; returns its generators."""
    if manifest.world_size != circle.world_size:
        return None
    for name, thing in own.items():
        key = own_name(circle.rank, name)
        if key not in manifest.objects:
            raise CannotLoad(f"{key} is not in the checkpoint")
        thing.load_state_dict(source.value(key, manifest.objects[key]))
    key = own_name(circle.rank, "random")
    found: dict[str, Any] | None = None
    if key in manifest.objects:
        found = source.value(key, manifest.objects[key])
    return found


def agreed(circle: Circle, trouble: str) -> None:
    """Raise :class:`UserError` on all ranks when one has ``trouble``."""
    found = whole(circle.tell(trouble))
    if found:
        raise UserError(found)


def whole(told: list[str]) -> str:
    """What the first rank that has trouble says; empty when none has."""
    for rank, text in enumerate(told):
        if text:
            return text if rank == 0 else f"rank {rank}: {text}"
    return ""
