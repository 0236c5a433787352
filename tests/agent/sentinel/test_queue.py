"""How long a process has waited for a core is read of the kernel, and told with each report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel.schedstat import QueueFile
from rankscope.agent.sentinel.watch import Watch
from rankscope.protocol.procs import start_time_s
from support.runs import wait_until

pytestmark = pytest.mark.processes

ON_ONE_CORE = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"


def test_processes_that_share_a_core_wait_for_it() -> None:
    """Two that never rest on one core: either waits, and its sample says for how long."""
    core = min(os.sched_getaffinity(0))
    both = [subprocess.Popen([sys.executable, "-c", ON_ONE_CORE % core]) for _ in range(2)]
    files = [QueueFile(process.pid) for process in both]
    pid = both[0].pid
    try:
        wait_until(lambda: min(file.read() or 0 for file in files) > 300, "waits for the core")
        started_s = start_time_s(pid)
        assert started_s is not None
        watch = Watch(Registration(pid, started_s, 0, 1), 0.0)
        told = watch.sample(0.0).queued_ms
        assert told is not None
        assert told > 300
        watch.close()
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert [file.read() for file in files] == [None, None]
    for file in files:
        file.close()
        assert file.read() is None


def test_where_the_kernel_does_not_tell_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such file, or one that reads otherwise: not known is not zero."""
    assert QueueFile(-1).read() is None
    file = QueueFile(os.getpid())
    assert file.read() is not None
    monkeypatch.setattr(os, "pread", lambda *_: b"\n")
    assert file.read() is None
    file.close()
    assert Path(f"/proc/{os.getpid()}/schedstat").exists()
