"""Memory control groups, v1 and v2: the limit, the use, and how often the kernel killed for it.

Sources: the kernel's ``admin-guide/cgroup-v2.rst`` (``memory.events``, ``memory.max``) and
``cgroup-v1/memory.rst`` (``memory.oom_control``, whose ``oom_kill`` line came with Linux 4.13).
Whatever cannot be read is None: nothing is claimed from silence.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from rankscope.agent import kernelfiles

V1_NO_LIMIT_BYTES = 1 << 60
"""v1 writes "no limit" as a page-rounded 2^63; no machine has an exbibyte."""


@dataclass(frozen=True)
class Mount:
    """Where a memory hierarchy is mounted, and which of its groups is at the mount's top."""

    version: int
    point: Path
    root: str


@dataclass(frozen=True)
class Group:
    """One memory control group, as files below a mount."""

    version: int
    path: Path
    top: Path
    """The mount's top: limits count from the group up to here."""

    def oom_kills(self) -> int | None:
        """Processes of this group (v2: and of those below) killed for want of memory, ever.

        A kill of the whole group (``memory.oom.group``) counts each of its processes here too.
        """
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _read_keyed(f"{self.path}/{name}").get("oom_kill")

    def limit_bytes(self) -> int | None:
        """The lowest limit from here up; None where there is none."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        limits = [_read_bytes(f"{path}/{name}") for path in _upwards(self.path, self.top)]
        real = [limit for limit in limits if limit is not None and limit < V1_NO_LIMIT_BYTES]
        return min(real, default=None)

    def available_bytes(self) -> int | None:
        """How much this group may still take below the tightest limit from here up.

        Inactive page cache counts as available, since the kernel drops it first.
        """
        names = (
            ("memory.max", "memory.current", "inactive_file")
            if self.version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        rooms = []
        for path in _upwards(self.path, self.top):
            limit = _read_bytes(f"{path}/{names[0]}")
            if limit is None or limit >= V1_NO_LIMIT_BYTES:
                continue
            used = _read_bytes(f"{path}/{names[1]}")
            if used is not None:
                cache = _read_keyed(f"{path}/memory.stat").get(names[2], 0)
                rooms.append(max(0, limit - max(0, used - cache)))
        return min(rooms, default=None)


@functools.lru_cache(maxsize=64)
def _upwards(path: Path, top: Path) -> tuple[str, ...]:
    """The group's folder and those above it, up to the mount's top. Asked with every report."""
    found = [path]
    while found[-1] != top and top in found[-1].parents:
        found.append(found[-1].parent)
    return tuple(map(str, found))


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The memory hierarchies in ``/proc/<pid>/mountinfo`` (proc(5)); v1 first, where both are."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        root, point = _unescape(fields[3]), Path(_unescape(fields[4]))
        if kind[0] == "cgroup2":
            found.append(Mount(2, point, root))
        elif kind[0] == "cgroup" and "memory" in kind[-1].split(","):
            found.append(Mount(1, point, root))
    return sorted(found, key=lambda mount: mount.version)


def find_group(proc_cgroup: str, mounts: list[Mount]) -> Group | None:
    """The memory group of a process, from its ``/proc/<pid>/cgroup`` (cgroups(7))."""
    paths: dict[int, str] = {}
    for line in proc_cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths[2] = path
        elif "memory" in controllers.split(","):
            paths[1] = path
    # A hybrid machine has both kinds mounted; the memory controller is in one of them, and a
    # process that names it in a v1 line has it there.
    version = 1 if 1 in paths else 2
    for mount in mounts:
        if mount.version != version or version not in paths:
            continue
        if ".." in Path(paths[version]).parts:
            continue  # outside of what this control group namespace shows
        below = os.path.relpath(paths[version], mount.root)
        if below.startswith(".."):
            continue  # outside of what this mount shows, as in a container
        return Group(version, mount.point / below if below != "." else mount.point, mount.point)
    return None


def group_of(pid: int, proc: Path = Path("/proc")) -> Group | None:
    """The memory group of ``pid`` as this process can see it; None when it cannot."""
    try:
        mounts = parse_mounts((proc / "self/mountinfo").read_text(errors="replace"))
        return find_group((proc / str(pid) / "cgroup").read_text(errors="replace"), mounts)
    except OSError:
        return None


def _unescape(path: str) -> str:
    """mountinfo writes space, tab, newline and backslash as octal escapes."""
    for code in ("040", "011", "012", "134"):
        path = path.replace("\\" + code, chr(int(code, 8)))
    return path


def _read_bytes(path: str) -> int | None:
    try:
        return int(kernelfiles.read(path))
    except (OSError, ValueError):  # "max", or not there
        return None


def _read_keyed(path: str) -> dict[str, int]:
    """A flat keyed file: one ``name number`` a line."""
    found = {}
    try:
        for line in kernelfiles.read(path).decode("ascii", "replace").splitlines():
            name, _, number = line.partition(" ")
            if number.strip().isdigit():
                found[name] = int(number)
    except OSError:
        return {}
    return found
