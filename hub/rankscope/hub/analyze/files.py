"""The dump files of a folder: which rank each is of, and what it holds."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rankscope.hub.analyze.restricted import Refused, loads
from rankscope.hub.state.columns import MAX_SIZE
from rankscope.protocol import limits
from rankscope.protocol.exits import UserError

MAX_FILE_BYTES = 1 << 30
MAX_FILES = 1 << 17
MAX_ENTRIES = 20_000
"""The newest ones count; a recorder keeps 2,000 unless told otherwise."""

MAX_FRAMES = 128

MAX_CHARS = limits.MAX_NAME_CHARS
"""Of a name in a dump; the rest is cut off."""

Number = Annotated[int, Meta(ge=-limits.MAX_COUNT, le=limits.MAX_COUNT)]

_RANK = re.compile(r"^(?P<prefix>.*?)(?P<rank>\d{1,6})(?P<suffix>\.(json|pickle|pkl|bin|dump))?$")


class Frame(msgspec.Struct):
    name: str
    filename: str
    line: Number


class Entry(msgspec.Struct):
    """One operation as the recorder has it."""

    process_group: list[str]
    collective_seq_id: Number
    profiling_name: str
    state: str
    time_created_ns: Number = 0
    record_id: Number = 0
    input_sizes: Any = ()
    input_dtypes: list[str] = []
    output_sizes: Any = ()
    output_dtypes: list[str] = []
    retired: bool = False
    is_p2p: bool = False
    pg_id: Number = -1
    frames: list[Frame] = []


class GroupConfig(msgspec.Struct):
    name: str = ""
    desc: str = ""
    ranks: str = ""


class Dump(msgspec.Struct):
    """What one rank's recorder had."""

    rank: int
    file: str
    version: str
    entries: list[Entry]
    groups: list[GroupConfig]
    enqueued: dict[str, int]
    """The last collective that was enqueued, by ``pg_id``."""


def read_folder(folder: Path) -> tuple[list[Dump], list[str]]:
    """The dumps in ``folder`` by rank, and a note on each file that was passed over.

    Raises :class:`UserError` when there is none, or when they cannot be of one job.
    """
    if not folder.exists():
        raise UserError(f"{folder}: no such folder")
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; name the one that the dump files are in")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found: dict[str, dict[int, list[Path]]] = {}
    for path in files[:MAX_FILES]:
        match = _RANK.match(path.name)
        if match is not None:
            by_rank = found.setdefault(match["prefix"], {})
            by_rank.setdefault(int(match["rank"]), []).append(path)
    notes: list[str] = []
    dumps: dict[str, list[Dump]] = {}
    for prefix, by_rank in found.items():
        for rank, paths in sorted(by_rank.items()):
            if rank >= MAX_SIZE:
                notes.append(f"{paths[0].name} was passed over: no job has a rank {rank}")
                continue
            dump = _first_readable(rank, paths, notes)
            if dump is not None:
                dumps.setdefault(prefix, []).append(dump)
    if not dumps:
        raise UserError(
            f"{folder} has no flight-recorder dump that can be read"
            + (
                f": {notes[0]}"
                if notes
                else "; their names end in the rank, as in nccl_trace_rank_0"
            )
        )
    return _of_one_job(folder, dumps), notes


def _of_one_job(folder: Path, dumps: dict[str, list[Dump]]) -> list[Dump]:
    """Of one prefix, or of several whose ranks do not meet (some keep JSON beside pickles)."""
    best = max(dumps.values(), key=len)
    ranks = {dump.rank for dump in best}
    for other in dumps.values():
        if other is best:
            continue
        twice = ranks.intersection(dump.rank for dump in other)
        if twice and _same(best, other):
            continue  # the same dumps in another form
        if twice:
            first = min(twice)
            names = sorted(d.file for d in (*best, *other) if d.rank == first)
            raise UserError(
                f"{folder} has dumps of more than one job: {' and '.join(names)} are both of rank "
                f"{first}; put each job's into a folder of its own"
            )
    return sorted(best, key=lambda dump: dump.rank)


def _same(one: list[Dump], other: list[Dump]) -> bool:
    """Whether dumps of the same ranks are of the same moments."""
    times = {dump.rank: [entry.time_created_ns for entry in dump.entries] for dump in one}
    return all(
        times.get(dump.rank, []) == [entry.time_created_ns for entry in dump.entries]
        for dump in other
    )


def _first_readable(rank: int, paths: Iterable[Path], notes: list[str]) -> Dump | None:
    """A pickle before its JSON form: it has stacks."""
    for path in sorted(paths, key=lambda path: path.suffix == ".json"):
        try:
            return read(rank, path)
        except Refused as error:
            notes.append(f"{path.name} was passed over: {error}")
        except OSError as error:
            notes.append(f"{path.name} cannot be read: {(error.strerror or 'error').lower()}")
    return None


def read(rank: int, path: Path) -> Dump:
    """One file. Raises :class:`Refused`, and :class:`OSError`."""
    size = path.stat().st_size
    if size == 0:
        raise Refused("it is empty")
    if size > MAX_FILE_BYTES:
        raise Refused("it is larger than any dump")
    data = path.read_bytes()
    if data.lstrip()[:1] == b"{":
        try:
            raw = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            raise Refused("it is no JSON, or was cut off") from None
    else:
        raw = loads(data)
    return parsed(rank, path.name, raw)


def parsed(rank: int, file: str, raw: Any) -> Dump:
    """A dump from plain data. Raises :class:`Refused` for anything else."""
    if not isinstance(raw, dict) or not isinstance(raw.get("entries", []), list):
        raise Refused("it is no dump of torch's flight recorder")
    if "version" not in raw or not ("entries" in raw or "pg_status" in raw):
        raise Refused("it is no dump of torch's flight recorder")
    try:
        return _parsed(rank, file, raw)
    except Exception as error:  # noqa: BLE001 - what a hostile dump has anywhere raises nearly anything
        text = "" if isinstance(error, UnicodeError) else str(error)
        reason = text.splitlines()[0][:120] if text else type(error).__name__
        raise Refused(f"it is no dump of torch's flight recorder ({reason})") from None


def _parsed(rank: int, file: str, raw: dict[str, Any]) -> Dump:
    entries = raw.get("entries", [])[-MAX_ENTRIES:]
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("frames"), list):
            entry["frames"] = entry["frames"][:MAX_FRAMES]
    found = msgspec.convert(entries, list[Entry], strict=False)
    config, status = raw.get("pg_config") or {}, raw.get("pg_status") or {}
    groups = [msgspec.convert(one, GroupConfig, strict=False) for one in config.values()]
    msgspec.msgpack.encode((found, groups))  # refuses what no document can tell: half characters
    for entry in found:
        entry.process_group = [text[:MAX_CHARS] for text in entry.process_group[:2]]
        entry.profiling_name = entry.profiling_name[:MAX_CHARS]
    for group in groups:
        group.name, group.desc = group.name[:MAX_CHARS], group.desc[:MAX_CHARS]
    enqueued = {
        str(name): int(one.get("last_enqueued_collective", -1)) for name, one in status.items()
    }
    return Dump(
        rank=rank,
        file=file,
        version=str(raw["version"])[:64],
        entries=sorted(found, key=lambda entry: entry.record_id),
        groups=groups,
        enqueued={name: most for name, most in enqueued.items() if abs(most) <= limits.MAX_COUNT},
    )
