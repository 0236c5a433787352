"""``rankscope compare`` from what ranks found to what is read; ranks themselves are elsewhere."""

import json

import pytest

from rankscope.protocol import jsontext
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.experiments import Case, Job, Measured, Predicted, Sent, StateBytes
from rankscope.protocol.experimentshapes import Comparison
from rankscope.tui.cli import main
from rankscope.tui.experiments import compare, comparing, cores, running
from rankscope.tui.text.compare import compare_text
from rankscope.tui.text.output import untoned


def asked(**changes: object) -> list[Case]:
    given: dict[str, object] = {
        "layers": [4],
        "precision": ["fp32"],
        "recompute": ["none"],
        "reshard": [True],
        "dim": 128,
        "heads": 4,
        "seq_len": 128,
        "batch_size": 8,
        "most": 64,
    }
    return comparing.cases(**(given | changes))  # type: ignore[arg-type]


def measured(case: int, rank: int, trainer: str, **changes: object) -> Measured:
    """What a rank of two finds of 869,504 parameters."""
    whole = 869_504
    each = whole if trainer == "ddp" else whole // 2
    given: dict[str, object] = {
        "rank": rank,
        "ranks": 2,
        "case": case,
        "device": "cpu",
        "backend": "gloo",
        "parameters": whole,
        "tensors": 28,
        "placements": {"Replicate" if trainer == "ddp" else "Shard(0)": 28},
        "predicted": Predicted(
            factors=(4.0, 4.0, 8.0),
            state=each * 16.0,
            gather=0.0 if trainer == "ddp" else 4e6,
            activation=40e6,
            peak=each * 16.0 + 40e6 + (0.0 if trainer == "ddp" else 4e6),
            sent=3_478_016.0,
        ),
        "state": StateBytes(parameters=each * 4, gradients=each * 4, optimizer=each * 8),
        "peak_bytes": each * 16 + 39_000_000 + rank,
        "losses": [5.5, 3.25],
        "batches_crc32": 7 + rank,
        "step_s": [0.25 + rank, 0.5, 0.3],
        "tokens": 6144,
        "sent": Sent(calls={"all_reduce": 2}, sent=3_478_024.0),
    }
    return Measured(**(given | changes))  # type: ignore[arg-type]


def made(**changes: object) -> Comparison:
    """DDP beside FSDP2, ``changes`` being FSDP2's."""
    job = Job(cases=asked(), updates=8, untimed=5, limit_bytes=None)
    found = [
        [measured(0, rank, "ddp") for rank in range(2)],
        [measured(1, rank, "fsdp2", **changes) for rank in range(2)],
    ]
    return compare.comparison(job, 2, found, usable=2)


def text(found: Comparison, width: int = 80, utf8: bool = True) -> list[str]:
    return [untoned(line) for line in compare_text(found, width, utf8)]


def test_a_sweep_has_ddp_once_a_setting_and_fsdp2_as_often_as_it_has_ways() -> None:
    """Layers by precision by what is recomputed; resharding is FSDP2's alone."""
    cases = asked(layers=[2, 4], precision=["fp32", "bf16"], reshard=[True, False])
    assert [case.trainer for case in cases] == ["ddp", "fsdp2", "fsdp2"] * 4
    assert {(case.layers, case.precision) for case in cases} == {
        *((2, "fp32"), (2, "bf16"), (4, "fp32"), (4, "bf16"))
    }
    with pytest.raises(UserError, match="these are 192 trainings; at most 64"):
        asked(layers=list(range(1, 33)), precision=["fp32", "bf16"], reshard=[True, False])


def test_losses_are_compared_with_those_of_ddp() -> None:
    """Relatively, and only after a look at whether the batches were the same."""
    ddp, fsdp2 = made(losses=[5.5, 3.2500325]).rows
    assert ddp.relative_difference is None
    assert fsdp2.relative_difference == pytest.approx(1e-5)
    assert fsdp2.same_batches is True
    other = made(batches_crc32=1)
    assert other.rows[1].same_batches is False
    assert "the batches were not the same: the losses do not compare" in other.notes


def test_a_time_is_that_of_the_slowest_rank() -> None:
    """Update by update; the median of them."""
    row = made().rows[0]
    assert (row.step_s, row.step_s_low, row.step_s_high) == (0.5, 0.3, 1.25)


def test_figures_of_ranks_stand_beside_the_prediction() -> None:
    """The table of memory for what is stored in fp32, and the formulas."""
    ddp, fsdp2 = made().rows
    assert ddp.state_bytes == ddp.predicted_state_bytes == 869_504 * 16
    assert fsdp2.state_bytes == fsdp2.predicted_state_bytes == 869_504 * 8
    assert ddp.factors == [4.0, 4.0, 8.0]
    assert fsdp2.peak_bytes_by_rank == [869_504 * 8 + 39_000_000, 869_504 * 8 + 39_000_001]
    assert (ddp.sent_bytes, ddp.counted_sent_bytes) == (3_478_016.0, 3_478_024.0)
    uncounted = made(sent=Sent(note="the flight recorder has none"))
    assert uncounted.rows[1].counted_sent_bytes is None
    assert uncounted.notes == ["volume not counted: the flight recorder has none"]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    """A setting, a line a trainer, bars, and what the figures are."""
    lines = text(made(), width)
    assert max(map(len, lines)) <= width
    assert "4 layers, fp32: 869 504 parameters, width 128" in lines
    (ddp,) = [line for line in lines if line.startswith("  DDP")]
    assert ddp.split()[1:9] == ["13.9", "MB", "13.9", "MB", "52.9", "MB", "53.9", "MB"]
    assert sum("█" in line and "░" in line for line in lines) == 3  # the title, and two bars
    assert "DDP's parameters: 28 Replicate; FSDP2's parameters: 28 Shard(0)" in lines
    assert any("4+4+8 bytes" in line for line in lines)
    assert "losses of FSDP2: 5.5000 3.2500" in lines


def test_without_utf8_bars_are_ascii() -> None:
    """And as long."""
    bars = [line for line in text(made(), utf8=False) if "#." in line]
    assert len(bars) == 2
    assert not [line for line in text(made(), utf8=False) if "█" in line]


def test_what_does_not_fit_is_refused_with_the_figure() -> None:
    """Its line says so, and the other trainer's losses are there."""
    why = "its state alone takes 13.9 MB a rank, and 10.0 MB is the limit"
    job = Job(cases=asked(), updates=8, untimed=5, limit_bytes=10_000_000)
    found = [
        [measured(0, 0, "ddp", refused=why, losses=[], step_s=[], state=None, peak_bytes=None)],
        [measured(1, 0, "fsdp2")],
    ]
    lines = text(compare.comparison(job, 1, found, usable=2))
    assert any(line.startswith("✗ DDP (4 layers, fp32) is refused: its state") for line in lines)
    (fsdp2,) = [line for line in lines if line.startswith("  FSDP2")]
    assert "3.2500" in fsdp2
    assert any(line.endswith("13.9 MB refused") for line in lines)


def test_more_ranks_than_cores_are_warned_of() -> None:
    """On a CPU; a GPU's ranks wait for the GPU."""
    assert "4 ranks on 2 cores: they take turns" in cores.warn(4, 2, "cpu")
    assert cores.warn(2, 2, "cpu") == cores.warn(4, 2, "cuda") == ""


def test_json_is_one_document() -> None:
    """With every figure; what is not known is null."""
    document = json.loads(jsontext.dumps(made(losses=[5.5, float("nan")])))
    assert document["rows"][1]["final_loss"] == "nan"
    assert document["rows"][0]["reshard_after_forward"] is None
    assert document["memory_limit_bytes"] is None


def test_a_rank_that_left_early_is_said() -> None:
    """Its lines are too few."""
    job = Job(cases=asked(), updates=8, untimed=5)
    whole = [measured(0, 0, "ddp"), measured(1, 0, "fsdp2")]
    assert len(running.by_case([whole, whole], job)) == 2
    with pytest.raises(UserError, match="ended early"):
        running.by_case([whole, whole[:1]], job)


KILLED = """    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 24311)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_01:29:30
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 24312)  {signal}
  error_file: <N/A>
"""
"""As torchrun tells it."""


@pytest.mark.parametrize(
    ("log", "says", "code"),
    [
        (
            f"W1130 torchrun\n{running.PROGRAM}: the text has 5 tokens\nTraceback\n",
            "the text has 5 tokens",
            Exit.USAGE,
        ),
        (
            'Traceback\n  File "x.py", line 1, in f\nRuntimeError: no luck\nmore\n',
            "the ranks ended with exit code 1: RuntimeError: no luck",
            Exit.PROBLEM,
        ),
        ("", "the ranks ended with exit code 1: without a word", Exit.PROBLEM),
        (
            KILLED.format(code=-9, signal="(SIGKILL)"),
            "rank 1 was ended by SIGKILL; memory may have run out",
            Exit.PROBLEM,
        ),
        (
            KILLED.format(code=-11, signal="(SIGSEGV)"),
            "rank 1 was ended by SIGSEGV",
            Exit.PROBLEM,
        ),
        (
            "RuntimeError: no luck\n" + KILLED.format(code=-6, signal="(SIGABRT)"),
            "the ranks ended with exit code 1: RuntimeError: no luck",
            Exit.PROBLEM,
        ),
    ],
)
def test_ranks_that_fail_are_told_in_one_line(log: str, says: str, code: Exit) -> None:
    """Their refusal is bad input, anything else a problem."""
    error = running.failure(1, log)
    assert (str(error), error.exit_code) == (says, code)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ranks", "0"],
        ["--ranks", "-1"],
        ["--ranks", "99999"],
        ["--ranks", "two"],
        ["--layers", "0"],
        ["--layers", "2,-4"],
        ["--layers", "2,2"],
        ["--layers", ""],
        ["--precision", "fp8"],
        ["--recompute", "some"],
        ["--reshard-after-forward", "maybe"],
        ["--batch-size", "0"],
        ["--updates", "1"],
        ["--updates", "-3"],
        ["--warmup", "0"],
        ["--dim", "10", "--heads", "4"],
        ["--memory-limit", "0"],
        ["--memory-limit", "-5MB"],
        ["--memory-limit", "much"],
        ["--text", "/does/not/exist"],
        ["--mode", "magic"],
        ["--layers", ",".join(map(str, range(1, 100)))],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on stdout, and nothing is started."""
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
