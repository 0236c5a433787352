"""The job that dumps are of: its groups, its size, and which ranks left none."""

import re
from dataclasses import dataclass, field

from rankscope.hub.analyze.files import Dump
from rankscope.hub.state.columns import MAX_SIZE
from rankscope.protocol.exits import UserError

APART_NS = 12 * 3600 * 10**9
"""Ranks of one job do not end their last collective half a day apart."""


@dataclass
class Group:
    """A process group, put together from all dumps."""

    name: str
    description: str
    backend: str
    ranks: set[int] = field(default_factory=set)
    told: bool = False
    """Whether the members were told, not gathered from who did anything in it."""


@dataclass
class Job:
    dumps: dict[int, Dump]
    groups: dict[str, Group]
    world_size: int
    missing: list[int]
    """Ranks of which there is no dump."""


def job_of(dumps: list[Dump], world_size: int | None = None) -> Job:
    """Raises :class:`UserError` when the dumps cannot be of one job."""
    groups: dict[str, Group] = {}
    for dump in dumps:
        for entry in dump.entries:
            name, description = (*entry.process_group, "", "")[:2]
            if not name:
                continue
            backend = entry.profiling_name.partition(":")[0]
            group = groups.setdefault(name, Group(name, description, backend))
            group.ranks.add(dump.rank)
    _told_members(dumps, groups)
    _check_one_job(dumps)
    known = [dump.rank for dump in dumps]
    told = [max(group.ranks) + 1 for group in groups.values() if group.told and group.ranks]
    size = max([max(known) + 1, *told, world_size or 1])
    if world_size is not None and size > world_size:
        raise UserError(f"--world-size {world_size}: there are dumps or groups of rank {size - 1}")
    if size > MAX_SIZE:
        raise UserError(f"there is a dump or a group of rank {size - 1}: no job is so large")
    for group in groups.values():
        if group.description == "default_pg" and not group.told:
            group.ranks = set(range(size))
    missing = sorted(set(range(size)) - set(known))
    return Job({dump.rank: dump for dump in dumps}, groups, size, missing)


def _told_members(dumps: list[Dump], groups: dict[str, Group]) -> None:
    """NCCL's dumps name the members of a group; gloo's do not."""
    seen: dict[str, tuple[set[int], str]] = {}
    for dump in dumps:
        for config in dump.groups:
            members = {int(text) for text in re.findall(r"\d{1,7}", config.ranks)}
            group = groups.get(config.name)
            if not members or group is None:
                continue
            before = seen.setdefault(config.name, (members, dump.file))
            if before[0] != members:
                raise UserError(
                    f"dumps of more than one job: {before[1]} and {dump.file} name different "
                    f"members of group {config.name}; put each job's into a folder of its own"
                )
            group.ranks, group.told = members, True


def _check_one_job(dumps: list[Dump]) -> None:
    versions = {dump.version: dump.file for dump in dumps}
    if len({version.partition(".")[0] for version in versions}) > 1:
        one, other = sorted(versions.values())[:2]
        raise UserError(
            f"dumps of more than one job: {one} and {other} are of different versions of torch; "
            "put each job's into a folder of its own"
        )
    newest = [
        (max(entry.time_created_ns for entry in dump.entries), dump.file)
        for dump in dumps
        if dump.entries
    ]
    if newest and max(newest)[0] - min(newest)[0] > APART_NS:
        raise UserError(
            f"dumps of more than one job: {min(newest)[1]} ends more than half a day before "
            f"{max(newest)[1]}; put each job's into a folder of its own"
        )
