"""Whether the stack of a rank that hangs can be read from outside."""

import shutil
import subprocess
import sys
from pathlib import Path

from rankscope.tui.doctor.check import Check

TIMEOUT_S = 20.0
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def stacks() -> list[Check]:
    """Let py-spy read a process of ours that is no child of it, as the sentinel would."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return []  # its absence is told among the libraries
    target = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with target:
        assert target.stdout is not None
        target.stdout.readline()
        try:
            result = subprocess.run(
                [program, "dump", "--pid", str(target.pid)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            works, said = result.returncode == 0, result.stderr.strip().splitlines()
        except subprocess.TimeoutExpired:
            works, said = False, [f"py-spy did not answer within {TIMEOUT_S:.0f} s"]
        target.kill()
    scope = SCOPE.read_text().strip() if SCOPE.exists() else "none"
    words = "py-spy reads other processes" if works else (said or ["py-spy failed"])[-1]
    return [
        Check(
            "stacks",
            works=works,
            essential=False,
            says=f"{words} (ptrace_scope {scope})",
            do=(
                "in a container add the capability SYS_PTRACE; on a host: "
                "sysctl kernel.yama.ptrace_scope=1 or less (ranks allow their own sentinel)"
            ),
        )
    ]
