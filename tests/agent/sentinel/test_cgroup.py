"""Memory control groups from files, v1 and v2, and which deaths were the kernel's."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.agent.sentinel import cgroup
from rankscope.agent.sentinel.cgroup import Group, Mount
from rankscope.agent.sentinel.oom import CLAIM_S, Counter, OomWatch
from support.noderouter import NodeRouter
from support.sentinels import Launcher, make_node_dir, register, sentinel
from support.wire import wait_until

HYBRID = """\
25 30 0:22 / /sys/fs/cgroup ro,nosuid shared:8 - tmpfs tmpfs ro,mode=755
26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw
33 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct
36 25 0:33 / /sys/fs/cgroup/memory rw shared:18 - cgroup cgroup rw,memory
"""
UNIFIED = "26 25 0:23 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content + "\n")
    return folder


def test_a_v2_group_is_found_by_its_path() -> None:
    """The line with number 0 and no controllers names the group below the unified mount."""
    found = cgroup.find_group("0::/slurm/job_7/step_0\n", cgroup.parse_mounts(UNIFIED))
    top = Path("/sys/fs/cgroup")
    assert found == Group(2, top / "slurm/job_7/step_0", top)


def test_on_a_hybrid_machine_the_memory_controller_is_where_its_line_says() -> None:
    """A v1 line naming memory wins over the unified one, which then has no memory files."""
    text = "9:name=systemd:/x\n4:memory:/jobs/7\n1:cpu,cpuacct:/jobs/7\n0::/x\n"
    top = Path("/sys/fs/cgroup/memory")
    found = cgroup.find_group(text, cgroup.parse_mounts(HYBRID))
    assert found == Group(1, top / "jobs/7", top)


def test_in_a_container_the_mount_may_start_below_the_root() -> None:
    """Docker mounts only the container's own group; its path is counted from there."""
    mounts = [Mount(1, Path("/sys/fs/cgroup/memory"), "/docker/abc")]
    inside = cgroup.find_group("4:memory:/docker/abc/job\n", mounts)
    assert inside == Group(1, Path("/sys/fs/cgroup/memory/job"), Path("/sys/fs/cgroup/memory"))
    assert cgroup.find_group("4:memory:/docker/other\n", mounts) is None
    assert cgroup.find_group("0::/../other\n", cgroup.parse_mounts(UNIFIED)) is None
    assert cgroup.find_group("", mounts) is None


def test_mount_points_with_blanks_are_read() -> None:
    """mountinfo writes them as octal escapes; lines that make no sense are passed over."""
    text = "junk\n" + UNIFIED.replace("/sys/fs/cgroup", "/mnt/my\\040groups")
    assert cgroup.parse_mounts(text) == [Mount(2, Path("/mnt/my groups"), "/")]


def test_the_tightest_limit_from_the_group_up_counts_in_v2(tmp_path: Path) -> None:
    """A job without a limit inside a limited slice is limited; page cache counts as room."""
    slice_ = write(
        tmp_path / "slice",
        memory__max="1000000",
        memory__current="900000",
        memory__stat="anon 100\ninactive_file 300000",
        memory__events="low 0\nhigh 0\nmax 4\noom 1\noom_kill 3\noom_group_kill 1",
    )
    job = write(
        slice_ / "job",
        memory__max="max",
        memory__current="800000",
        memory__events="oom_kill 2\noom_group_kill 0",
    )
    group = Group(2, job, tmp_path)
    assert group.limit_bytes() == 1_000_000
    assert group.available_bytes() == 400_000
    assert group.oom_kills() == 2


def test_a_v1_group_is_read_by_its_own_names(tmp_path: Path) -> None:
    """No limit is a huge number there, and the counter is a line of memory.oom_control."""
    write(tmp_path, memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="5")
    job = write(
        tmp_path / "job",
        memory__limit_in_bytes="2000",
        memory__usage_in_bytes="2500",
        memory__stat="cache 9\ntotal_inactive_file 100",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 5",
    )
    group = Group(1, job, tmp_path)
    assert group.limit_bytes() == 2000
    assert group.available_bytes() == 0
    assert group.oom_kills() == 5
    assert Group(1, tmp_path, tmp_path).limit_bytes() is None


@pytest.mark.parametrize("version", [1, 2])
def test_nothing_is_claimed_where_nothing_can_be_read(tmp_path: Path, version: int) -> None:
    """A group that is gone or closed gives None throughout."""
    group = Group(version, tmp_path / "none", tmp_path)
    assert group.oom_kills() is None
    assert group.limit_bytes() is None
    assert group.available_bytes() is None


def test_each_step_of_the_counter_accounts_for_one_death() -> None:
    """One OOM kill and a launcher's SIGKILL to the others make one OOM death, not two."""
    counter = Counter()
    counter.read(7, 0.0)
    assert not counter.claim(1.0)
    counter.read(8, 2.0)
    assert counter.claim(2.5)
    assert not counter.claim(2.6)
    assert counter.since_first == 1


def test_an_old_step_of_the_counter_is_no_evidence() -> None:
    """An OOM kill of something else, long ago, says nothing of a death now."""
    counter = Counter()
    counter.read(0, 0.0)
    counter.read(1, 1.0)
    assert not counter.claim(1.0 + CLAIM_S + 0.1)


def test_a_counter_that_cannot_be_read_is_no_evidence() -> None:
    """Nor does a first reading count as a step."""
    counter = Counter()
    counter.read(None, 0.0)
    assert counter.since_first is None
    counter.read(4, 1.0)
    assert counter.since_first == 0
    assert not counter.claim(1.0)


def test_an_oom_kill_is_seen_although_a_periodic_reading_saw_the_step_first(
    tmp_path: Path,
) -> None:
    """A large process is seen dead long after the kernel counted it."""
    events = write(tmp_path / "job", memory__events="oom_kill 0") / "memory.events"
    group = Group(2, tmp_path / "job", tmp_path)
    watch = OomWatch(lambda pid: group)
    watch.add(1, 0.0)
    watch.add(2, 0.0)
    events.write_text("oom_kill 1\n")
    watch.poll(1.0)
    watch.poll(2.0)
    assert watch.killed(1, 3.0)
    assert not watch.killed(2, 3.1)
    assert not watch.killed(3, 3.1)
    assert watch.kills == 1


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A fresh v1 or v2 memory group with room for 64 MiB, removed at the end."""
    own = cgroup.group_of(os.getpid())
    if own is None:
        pytest.skip("this machine shows no memory control group")
    base = own.top if own.version == 1 else own.path
    group = base / f"rankscope-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error.strerror}")
    try:
        name = "memory.limit_in_bytes" if own.version == 1 else "memory.max"
        try:
            (group / name).write_text(str(64 << 20))
            for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):  # none, if there is any
                with contextlib.suppress(OSError):
                    (group / swap).write_text("0" if "max" in swap else str(64 << 20))
        except OSError as error:
            pytest.skip(f"a memory control group cannot be limited here: {error.strerror}")
        yield group
    finally:
        group.rmdir()


HOG = """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
signal.pause()
held = []
for _ in range(64):
    held.append(bytearray(os.urandom(1 << 20)) * 4)
"""


@pytest.mark.processes
def test_a_real_oom_kill_is_told_from_a_sigkill(tmp_path: Path, memory_group: Path) -> None:
    """In a real group that is too small one rank is killed by the kernel, one by hand."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        pids = [launcher.run(HOG), launcher.start()]
        for rank, pid in enumerate(pids):
            try:
                (memory_group / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                pytest.skip(f"a process cannot be moved into a group here: {error.strerror}")
            register(directory, pid, rank)
        hub.wait_for_state(1, "alive")
        assert hub.reports()[-1].memory_limit_bytes == 64 << 20
        assert hub.reports()[-1].oom_kills == 0
        os.kill(pids[0], signal.SIGUSR1)
        oom = hub.wait_for_death(0)
        os.kill(pids[1], signal.SIGKILL)
        by_hand = hub.wait_for_death(1)
        assert (oom.signal, oom.oom_killed) == (signal.SIGKILL, True)
        assert (by_hand.signal, by_hand.oom_killed) == (signal.SIGKILL, False)
        hub.wait_for(lambda: hub.reports()[-1].oom_kills == 1)
    wait_until(lambda: not (memory_group / "cgroup.procs").read_text().strip())
