"""What trainers are measured at: ranks are started once for each number of them, and asked much."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from rankscope.protocol import budget, experiments
from rankscope.protocol.experiments import Case, Job, Measured, Sent
from rankscope.trainers.experiments.volume import count
from support import warm

pytestmark = pytest.mark.processes

TIMEOUT_S = 280.0
DIM, SEQ, BATCH = 32, 32, 2


def case(trainer: str, layers: int = 1, **changes: object) -> Case:
    return Case(
        trainer=trainer,  # type: ignore[arg-type]
        layers=layers,
        dim=DIM,
        heads=2,
        seq_len=SEQ,
        batch_size=BATCH,
        **changes,  # type: ignore[arg-type]
    )


BASIC = [case("ddp"), case("fsdp2"), case("ddp", layers=3), case("fsdp2", layers=3)]
MORE = [
    case("ddp", layers=2),
    case("fsdp2", layers=2),
    case("ddp", layers=3, recompute="full"),
    case("fsdp2", layers=3, recompute="full"),
    case("fsdp2", layers=3, reshard_after_forward=False),
    case("ddp", precision="bf16"),
    case("fsdp2", precision="bf16"),
]
CASES = {1: BASIC, 2: [*BASIC, *MORE], 4: BASIC}
"""By the number of ranks."""


def launch(job: Job, ranks: int) -> "list[list[Measured]]":
    """Of each rank, what it found case by case."""
    with tempfile.TemporaryDirectory(prefix="rs-compare-") as folder:
        file = Path(folder, "job.json")
        file.write_bytes(experiments.encode(job))
        launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        kept = {name: value for name, value in os.environ.items() if name not in launcher}
        ended = subprocess.run(
            [
                *(warm.python(), "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", str(ranks), "-m"),
                *("rankscope.trainers.experiments.measure", str(file), folder),
            ],
            env=kept | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": warm.python()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return [
            [experiments.decode_measured(line) for line in lines.read_bytes().splitlines()]
            for lines in sorted(Path(folder).glob("rank-*.jsonl"))
        ]


@cache
def found(ranks: int) -> list[list[Measured]]:
    """Every case on ``ranks`` ranks; started once."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("All happy ranks are alike; each unhappy rank hangs in its own way. " * 200)
        text.flush()
        job = Job(cases=CASES[ranks], updates=4, untimed=3, text=text.name)
        by_rank = launch(job, ranks)
    assert [len(one) for one in by_rank] == [len(CASES[ranks])] * ranks
    return by_rank


def of(ranks: int, wanted: Case) -> list[Measured]:
    at = CASES[ranks].index(wanted)
    return [one[at] for one in found(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_state_is_what_the_table_says_for_fp32(ranks: int) -> None:
    """4+4+8 bytes a parameter, whole under DDP, an Rth under FSDP2; and 4 bytes a tensor of steps.

    In each precision and every other setting: they change what is computed in, not what is kept.
    """
    for at, one in enumerate(CASES[ranks]):
        for rank in found(ranks):
            measured = rank[at]
            assert measured.state is not None
            assert measured.predicted is not None
            scheme = "ddp" if one.trainer == "ddp" else "fsdp"
            whole = measured.parameters
            table = budget.state_bytes(scheme, whole, ranks, budget.FP32_ADAM)
            assert measured.state.table == table == measured.predicted.state
            assert measured.predicted.factors == (4.0, 4.0, 8.0)
            assert measured.state.counters == 4 * measured.tensors
            assert measured.state.buffers == 0


def size(ranks: int, trainer: str, layers: int) -> int:
    """Bytes of the state of a rank."""
    (one,) = {rank.state.table for rank in of(ranks, case(trainer, layers)) if rank.state}
    return one


def test_deeper_models_grow_the_state_of_ddp_linearly_and_of_fsdp2_by_an_rth() -> None:
    """A layer takes as many bytes as the one before it."""
    layer = (12 * DIM**2 + 2 * DIM) * 16
    for ranks in (1, 2, 4):
        assert size(ranks, "ddp", 3) - size(ranks, "ddp", 1) == 2 * layer
        assert size(ranks, "fsdp2", 3) - size(ranks, "fsdp2", 1) == 2 * layer / ranks
    for trainer, each in (("ddp", layer), ("fsdp2", layer / 2)):
        sizes = [size(2, trainer, layers) for layers in (1, 2, 3)]
        assert [sizes[1] - sizes[0], sizes[2] - sizes[1]] == [each, each]


def peak(ranks: int, wanted: Case) -> int:
    peaks = [one.peak_bytes for one in of(ranks, wanted) if one.peak_bytes is not None]
    assert len(peaks) == ranks
    return max(peaks)


@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_peaks_fall_with_activation_checkpointing(trainer: str) -> None:
    """What is computed again is not kept."""
    assert peak(2, case(trainer, 3, recompute="full")) < peak(2, case(trainer, 3))


def test_peaks_fall_with_reshard_after_forward() -> None:
    """Parameters that are freed after forward are not there at its end."""
    assert peak(2, case("fsdp2", 3)) < peak(2, case("fsdp2", 3, reshard_after_forward=False))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_predicted_peak_is_one_from_above_and_near(ranks: int) -> None:
    """To a thousandth for DDP; for FSDP2 within a half, of models as shallow as these."""
    for at, one in enumerate(CASES[ranks]):
        for rank in found(ranks):
            predicted = rank[at].predicted
            assert predicted is not None
            assert predicted.peak is not None
            over = predicted.peak / (rank[at].peak_bytes or 0)
            near = 1.005 if one.trainer == "ddp" else 1.5
            assert 0.995 < over < near, (one, ranks, over)


@pytest.mark.parametrize("ranks", [2, 4])
def test_both_trainers_have_the_same_batches_and_losses(ranks: int) -> None:
    """To the bit, and to rounding."""
    for rank in range(ranks):
        ddp, fsdp2 = of(ranks, case("ddp"))[rank], of(ranks, case("fsdp2"))[rank]
        assert ddp.batches_crc32 == fsdp2.batches_crc32
        assert fsdp2.losses == pytest.approx(ddp.losses, rel=1e-4)
    assert len({one.batches_crc32 for one in of(ranks, case("ddp"))}) == ranks
    assert of(ranks, case("ddp"))[0].losses == of(ranks, case("ddp"))[1].losses


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_placements_are_told(ranks: int) -> None:
    """Every tensor is whole under DDP, and cut along its first dimension under FSDP2."""
    ddp, fsdp2 = of(ranks, case("ddp"))[0], of(ranks, case("fsdp2"))[0]
    assert ddp.placements == {"Replicate": ddp.tensors}
    assert fsdp2.placements == {"Shard(0)": fsdp2.tensors}


def volumes(ranks: int, wanted: Case) -> tuple[Sent, float]:
    """What the recorder has of an update of rank 0, and what a rank sends by the formulas."""
    measured = of(ranks, wanted)[0]
    assert measured.sent is not None
    assert measured.predicted is not None
    assert measured.sent.note == ""
    return measured.sent, measured.predicted.sent


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_recorder_counts_what_the_ring_formulas_say(ranks: int) -> None:
    """For DDP, but for the count of tokens; for FSDP2 where gloo reduces by an all-reduce."""
    whole = 4 * of(ranks, case("ddp"))[0].parameters
    counted, by_formula = volumes(ranks, case("ddp"))
    assert by_formula == budget.all_reduce_bytes(whole, ranks)
    assert 0 <= counted.sent - by_formula < 100
    counted, by_formula = volumes(ranks, case("fsdp2"))
    assert by_formula == 3 * budget.ring_bytes(whole, ranks)
    assert counted.size_bytes["all_gather"] == 2 * whole
    assert whole <= counted.size_bytes["all_reduce"] < whole + 1000  # the norm of the gradient


def test_parameters_that_are_kept_are_gathered_once() -> None:
    """And in 16 bits they are half as many bytes."""
    ranks = 2
    kept, small = case("fsdp2", 3, reshard_after_forward=False), case("fsdp2", precision="bf16")
    counted, by_formula = volumes(ranks, kept)
    whole = 4 * of(ranks, kept)[0].parameters
    assert counted.size_bytes["all_gather"] == whole
    assert by_formula == 2 * budget.ring_bytes(whole, ranks)
    counted, _ = volumes(ranks, small)
    assert counted.size_bytes["all_gather"] == 2 * 2 * of(ranks, small)[0].parameters


def test_timed_updates_are_whole_and_counted_ones_are_not_timed() -> None:
    """Of four updates the last one; its tokens are those of all ranks."""
    measured = of(2, case("ddp"))
    assert [len(one.step_s) for one in measured] == [1, 1]
    assert [len(one.losses) for one in measured] == [4, 4]
    assert {one.tokens for one in measured} == {2 * BATCH * SEQ}


def test_a_limit_refuses_what_does_not_fit_with_the_figure() -> None:
    """By the state before anything is built; by the peak once it is counted; on all ranks alike."""
    state = 16 * of(2, case("ddp"))[0].parameters
    fits = peak(2, case("fsdp2"))
    limit = (fits + peak(2, case("ddp"))) // 2
    assert fits < limit
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("All happy ranks are alike. " * 500)
        text.flush()
        cases = [case("ddp", layers=24), case("ddp"), case("fsdp2")]
        job = Job(cases=cases, updates=4, untimed=3, text=text.name, limit_bytes=limit)
        by_rank = launch(job, 2)
    assert state < limit
    for deep, counted, trained in by_rank:
        assert "its state alone takes" in deep.refused
        assert deep.state is None
        assert "of tensors at once" in counted.refused
        assert counted.losses == []
        assert trained.refused == ""
        assert len(trained.losses) == 4
    assert len({json.dumps([one.refused for one in rank]) for rank in by_rank}) == 1


def entry(
    name: str, inputs: Sequence[int], outputs: Sequence[int], dtype: str
) -> dict[str, object]:
    return {
        "profiling_name": name,
        "input_sizes": [list(inputs)],
        "output_sizes": [list(outputs)],
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
    }


def test_volumes_of_14_gb_on_8_ranks_as_a_recorder_has_them() -> None:
    """24.5 GB for an all-reduce, 36.75 GB for two gathers and a reduce-scatter."""
    whole = 7_000_000_000
    reduce = count([entry("nccl:all_reduce", [whole], [whole], "BFloat16")], 8)
    assert reduce.sent == 24.5e9
    gather = entry("nccl:_all_gather_base", [whole // 8], [whole], "Half")
    scatter = entry("nccl:_reduce_scatter_base", [whole], [whole // 8], "Half")
    sharded = count([gather, gather, scatter], 8)
    assert sharded.sent == 36.75e9
    assert sharded.calls == {"all_gather": 2, "reduce_scatter": 1}
    other = count([entry("gloo:broadcast", [4], [4], "Float")], 8)
    assert (other.sent, other.calls) == (0.0, {"broadcast": 1})
