"""Settings that cannot work are refused before anything is started."""

import itertools
import math
import signal
from pathlib import Path

import pytest
import torch

from rankscope.protocol.exits import Exit, UserError
from rankscope.trainers.config import Config, from_arguments, parser, signals
from rankscope.trainers.data import build, check_text
from rankscope.trainers.ddp import TRAINER as DDP
from rankscope.trainers.fsdp2 import TRAINER as FSDP2
from rankscope.trainers.launch import Place, choose_device
from rankscope.trainers.parallel import Trainer
from rankscope.trainers.precision import check_precision
from rankscope.trainers.program import main
from rankscope.trainers.schedule import learning_rate


def parse(*arguments: str) -> Config:
    return from_arguments(parser("trainer", "a trainer").parse_args(arguments))


def test_no_arguments_give_the_defaults() -> None:
    """The command line and the settings' own defaults are the same."""
    assert parse() == Config()


def test_every_setting_has_its_option() -> None:
    """What is set on the command line arrives."""
    config = parse("--steps", "7", "--text", "x.txt", "--lr", "0.5", "--attach", "plain")
    assert (config.steps, config.text, config.lr, config.attach) == (7, Path("x.txt"), 0.5, "plain")


@pytest.mark.parametrize(
    "option",
    [
        *("--steps", "--batch-size", "--seq-len", "--layers", "--dim", "--heads"),
        *("--accumulate", "--threads", "--text-bytes", "--log-every", "--lr", "--clip"),
    ],
)
def test_nothing_of_what_is_needed_is_refused(option: str) -> None:
    """Zero steps, ranks or layers make no run; the option is named."""
    with pytest.raises(UserError, match=f"^{option} is 0"):
        parse(option, "0")


@pytest.mark.parametrize("option", ["--steps", "--warmup", "--workers", "--eval-every", "--seed"])
def test_a_negative_count_is_refused(option: str) -> None:
    """There is no run of minus one."""
    with pytest.raises(UserError, match=f"^{option} is -1"):
        parse(option, "-1")


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_learning_rate_that_is_no_positive_number_is_refused(value: str) -> None:
    """It would spoil every parameter at the first step."""
    with pytest.raises(UserError, match="--lr"):
        parse("--lr", value)


def test_heads_must_divide_the_width() -> None:
    """The message names a width that works."""
    with pytest.raises(UserError, match="--dim 12"):
        parse("--dim", "10", "--heads", "3")


def test_more_gpus_than_there_are_cannot_be_had() -> None:
    """One GPU for each rank of the node, or the line says how many there are."""
    with pytest.raises(UserError, match="CUDA devices for 4096 ranks"):
        choose_device("cuda", Place(local_world_size=4096))
    assert choose_device("auto", Place(local_world_size=4096)).type == "cpu"


def test_too_little_text_is_refused_with_both_numbers() -> None:
    """How many tokens there are, and how many one batch of all ranks needs."""
    config = Config(batch_size=4, seq_len=10, accumulate=3)
    check_text(config, bytes(241), ranks=2)
    with pytest.raises(UserError, match="has 239 tokens and one batch needs 240"):
        check_text(config, bytes(240), ranks=2)


@pytest.mark.parametrize("uneven", ["pad", "join"])
def test_a_last_microbatch_need_only_be_begun_where_the_rest_is_not_dropped(uneven: str) -> None:
    """Two microbatches on two ranks are 160 tokens; the third has one."""
    config = Config(batch_size=4, seq_len=10, accumulate=3, uneven=uneven)
    check_text(config, bytes(162), ranks=2)
    assert len(build(config, bytes(162), 0, 2, pin_memory=False).loader) == 3
    with pytest.raises(UserError, match="has 160 tokens and one batch needs 161"):
        check_text(config, bytes(161), ranks=2)
    assert len(build(config, bytes(161), 0, 2, pin_memory=False).loader) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--text", "/does/not/exist"], "no such file"),
        (["--text-bytes", "1000"], "one batch needs"),
        (["--dim", "10", "--heads", "4"], "does not divide"),
        (["--batch-size", "-3"], "--batch-size is -3"),
        (["--steps", "many"], "invalid int"),
        (["--device", "tpu"], "invalid choice"),
        (["--device", "cuda"], "CUDA devices"),
        (["--nonsense"], "unrecognized arguments"),
        (["--history", "/does/not/exist/h.jsonl"], "--history"),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No traceback, no usage text, nothing on stdout."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert main(DDP, arguments) == Exit.USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert says in output.err


@pytest.mark.parametrize(
    ("trainer", "arguments", "says"),
    [
        (DDP, ["--bucket-mb", "0"], "--bucket-mb is 0.0"),
        (DDP, ["--bucket-mb", "nan"], "--bucket-mb is nan"),
        (DDP, ["--static-graph", "--accumulate", "2"], "--static-graph"),
        (DDP, ["--static-graph", "--find-unused-parameters"], "leave out --find-unused"),
        (DDP, ["--precision", "fp8"], "invalid choice: 'fp8'"),
        (DDP, ["--recompute", "some"], "invalid choice: 'some'"),
        (DDP, ["--compile", "nvcc"], "invalid choice: 'nvcc'"),
        (DDP, ["--uneven", "hang"], "invalid choice: 'hang'"),
        (DDP, ["--text-bytes", "9000", "--accumulate", "3"], "one batch needs 12288"),
        (
            DDP,
            ["--text-bytes", "9000", "--accumulate", "4", "--uneven", "pad"],
            "needs 12289 (ranks × microbatches × sequences × tokens: 4 × 4 × 8 × 128, the last",
        ),
        (FSDP2, ["--replicas", "0"], "--replicas 0 does not divide 4 ranks"),
        (FSDP2, ["--replicas", "3"], "--replicas 3 does not divide 4 ranks"),
        (FSDP2, ["--replicas", "-2"], "--replicas -2 does not divide 4 ranks"),
        (FSDP2, ["--replicas", "2", "--shards", "3"], "a mesh of 2 × 3"),
        (FSDP2, ["--shards", "2"], "start 2 of them or leave out --shards"),
        (FSDP2, ["--shards", "0"], "--shards is 0"),
        (FSDP2, ["--reduce-dtype", "fp64"], "invalid choice: 'fp64'"),
    ],
)
def test_four_ranks_refuse_before_they_have_a_process_group(
    trainer: Trainer,
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mesh that is not the world, data too short for an update, options at odds: one line."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)  # where there would be no process group
    assert main(trainer, arguments) == Exit.USAGE
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert says in output.err


def test_a_precision_the_device_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without bf16 is told from one with it; one that emulates it counts as without."""
    gpu = torch.device("cuda", 0)
    for has in (True, False):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda emulated, has=has: has)
        check_precision("fp16", gpu)
        check_precision("bf16", torch.device("cpu"))
        if has:
            check_precision("bf16", gpu)
    with pytest.raises(UserError, match="use fp16 or fp32"):
        check_precision("bf16", gpu)
    with pytest.raises(UserError, match="--precision fp8 is unknown"):
        check_precision("fp8", gpu)


def test_the_learning_rate_rises_and_falls() -> None:
    """Up to its peak in the warm-up, down to a tenth of it at the last update."""
    rates = [learning_rate(step, peak=1.0, warmup=4, steps=20) for step in range(1, 21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[3:]))
    assert math.isclose(rates[-1], 0.1)


def test_a_run_shorter_than_its_warm_up_has_a_learning_rate() -> None:
    """Three updates of a warm-up of ten."""
    assert learning_rate(3, peak=1.0, warmup=10, steps=3) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--on-signal", "USR9"), "there is no such signal; write it as USR1"),
        (("--on-signal", "SIGKILL"), "no process can answer to that one"),
        (("--on-signal", "USR1"), "takes a --checkpoint-dir"),
        (("--on-signal", "USR1", "--attach", "plain"), "takes --attach full"),
    ],
)
def test_a_signal_that_the_ranks_cannot_save_and_stop_at_is_refused(
    options: tuple[str, ...], says: str
) -> None:
    """In words that say what to do."""
    with pytest.raises(UserError, match=says):
        parse(*options)


def test_signals_are_named_with_and_without_the_sig() -> None:
    """As kill and sbatch write them."""
    given = ("--on-signal", "usr1", "--on-signal", "SIGUSR2", "--checkpoint-dir", "saved")
    assert signals(parse(*given)) == [signal.SIGUSR1, signal.SIGUSR2]
