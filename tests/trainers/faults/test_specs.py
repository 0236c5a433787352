"""Faults as they are written: what is refused, in one line, before any process group."""

import os

import pytest
import torch.distributed as dist

from rankscope.protocol import faults
from rankscope.protocol.faults import Spec
from rankscope.protocol.faulttable import FAULTS
from rankscope.trainers import ddp, fsdp2
from rankscope.trainers.faults.loader import longer_s
from rankscope.trainers.program import main


def test_a_fault_is_written_and_read() -> None:
    """With and without a third part, which may hold colons."""
    for spec in (Spec("sigkill", 1, 20), Spec("nan-gradient", 0, 3, "blocks.0.mlp.up.weight/2")):
        assert faults.parse(str(spec), FAULTS) == spec
    assert faults.parse("environment@1:1:A=b:c", FAULTS).where == "A=b:c"


def test_a_slow_phase_is_felt_at_any_pace() -> None:
    """0.3 s, or 0.4 of a usual step where that is more; before any step has ended, 0.3 s."""
    assert longer_s([]) == longer_s([5.0]) == 0.3
    assert longer_s([0.0, 0.1, 0.2, 0.3]) == 0.3
    assert longer_s([0.0, 9.0, 11.0, 13.0]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("sigkil@0:1", "did you mean sigkill?"),
        ("slow-loader@0:1", "did you mean loader-slow?"),
        ("zzz@0:1", "there are sigkill, exit0"),
        ("nofault@0:1", "there are sigkill, exit0"),
        ("gil@0:1", "did you mean gil-held?"),
        ("", "there is no fault ''"),
        ("sigkill", "write it FAULT@rank:step"),
        ("sigkill@0", "write it FAULT@rank:step"),
        ("sigkill@-1:1", "write it FAULT@rank:step"),
        ("sigkill@x:1", "write it FAULT@rank:step"),
        ("sigkill@0:1:", "write it FAULT@rank:step"),
        ("sigkill@0:1:lunch", "not what this run has there (phase: data"),
        ("sigkill@1:1", "there is no rank 1 among 1"),
        ("sigkill@0:0", "there is no step 0 among 1 to 5"),
        ("sigkill@0:6", "there is no step 6 among 1 to 5"),
        ("loader-stuck@0:1:data", "loader-stuck has no third part"),
        ("slow-forward@0:1:-2", "not what this run has there (seconds"),
        ("slow-forward@0:1:soon", "not what this run has there (seconds"),
        ("nan-parameter@0:1:blocks.9.mlp.up.weight", "not what this run has there (parameter"),
        ("nan-gradient@0:1:head.weight/2", "not what this run has there (parameter, or"),
        ("nan-module@0:1:nothing", "not what this run has there (module"),
        ("nan-input@0:1:2", "not what this run has there (microbatch"),
        ("nan-optimizer@0:1", "takes a step of at least 2"),
        ("bit-flip@0:1", "takes at least 2 ranks"),
        ("same-data@0:1", "takes at least 2 ranks"),
        ("disk-full@0:1", "use --checkpoint-dir DIR and --checkpoint-every 1"),
    ],
)
def test_what_cannot_be_is_refused(
    fault: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line that says what to do, and no process group."""
    assert main(ddp.TRAINER, ["--steps", "5", "--fault", fault]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert says in line
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("options", "fault", "says"),
    [
        (("--workers", "1"), "loader-stuck@0:1", "use --workers 0"),
        (("--workers", "1"), "lock@0:1:data", "use --workers 0"),
        (("--uneven", "join"), "data-exhausted@0:1", "leave that out"),
        (("--compile", "auto"), "nan-module@0:1", "leave out --compile"),
        ((), "cast-overflow@0:1", "takes --reduce-dtype fp16"),
        ((), "bit-flip@0:1", "without --replicas 2"),
        ((), "environment@0:2", "its step is 1"),
        ((), "environment@0:1:NAME", "not what this run has there (NAME=VALUE"),
        ((), "same-data@0:1:0", "not what this run has there (the other rank"),
        ((), "same-data@0:1:2", "not what this run has there (the other rank"),
    ],
)
def test_what_these_options_leave_no_room_for_is_refused(
    options: tuple[str, ...],
    fault: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As rank 0 of two sees it."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(fsdp2.TRAINER, [*options, "--fault", fault]) == 2
    assert says in capsys.readouterr().err
    assert "MASTER_ADDR" not in os.environ
