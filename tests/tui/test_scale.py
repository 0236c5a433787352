"""``rankscope scale`` from what ranks found to what is read."""

import json
from collections.abc import Mapping

import pytest

from rankscope.protocol import jsontext
from rankscope.protocol.exits import UserError
from rankscope.protocol.experiments import Case, Job, Measured, Predicted, Sent, StateBytes
from rankscope.protocol.experimentshapes import Scaling
from rankscope.tui.cli import main
from rankscope.tui.experiments import scale, scaling
from rankscope.tui.text.output import untoned
from rankscope.tui.text.scale import scale_text


def measured(ranks: int, update_s: float, tokens: int, device: str = "cpu") -> list[Measured]:
    """Three timed updates; the last rank is a little slower."""
    return [
        Measured(
            rank=rank,
            ranks=ranks,
            case=0,
            device=device,
            backend="gloo",
            parameters=869_504,
            predicted=Predicted(factors=(4.0, 4.0, 8.0), state=1.0, sent=3.4e6),
            state=StateBytes(parameters=4, gradients=4, optimizer=8),
            peak_bytes=40_000_000 + rank,
            step_s=[update_s * (1 + 0.1 * (rank == ranks - 1) - 0.1)] * 3,
            tokens=3 * tokens,
            sent=Sent(calls={"all_reduce": 3}, sent=3.5e6),
        )
        for rank in range(ranks)
    ]


def made(
    found: Mapping[int, list[Measured]],
    mode: str = "strong",
    trainer: str = "ddp",
    usable: int = 2,
    failed: Mapping[int, str] | None = None,
) -> Scaling:
    told = failed or {}
    batches = scaling.batch_sizes(mode, sorted([*found, *told]), None)
    jobs = {
        ranks: Job(
            cases=[
                Case(
                    trainer=trainer,  # type: ignore[arg-type]
                    layers=4,
                    dim=128,
                    heads=4,
                    seq_len=128,
                    batch_size=batch,
                )
            ],
            updates=8,
            untimed=5,
        )
        for ranks, batch in batches.items()
    }
    return scale.scaled(jobs, mode, found, told, usable)


def test_strong_scaling_divides_the_sequences_of_an_update() -> None:
    """Weak scaling gives each rank as many."""
    assert scaling.batch_sizes("strong", [1, 2, 4], None) == {1: 16, 2: 8, 4: 4}
    assert scaling.batch_sizes("strong", [1, 3], None) == {1: 18, 3: 6}
    assert scaling.batch_sizes("weak", [1, 2, 4], None) == {1: 8, 2: 8, 4: 8}
    assert scaling.batch_sizes("weak", [1, 2], 3) == {1: 3, 2: 3}
    with pytest.raises(UserError, match="does not divide by every one of 1, 2, 4 ranks"):
        scaling.batch_sizes("strong", [1, 2, 4], 6)


def test_strong_speed_up_is_t1_over_tr() -> None:
    """The same tokens in 0.4 s and in 0.25 s."""
    rows = made({1: measured(1, 0.4, 2048), 2: measured(2, 0.25, 2048)}).rows
    assert [row.speedup for row in rows] == [1.0, pytest.approx(1.6)]
    assert [row.efficiency for row in rows] == [1.0, pytest.approx(0.8)]
    assert [row.tokens_per_s for row in rows] == [pytest.approx(5120), pytest.approx(8192)]


def test_weak_speed_up_is_of_the_time_for_equally_many_tokens() -> None:
    """Twice the tokens in 0.5 s where one rank takes 0.4 s: an efficiency of 0.4/0.5."""
    found = {1: measured(1, 0.4, 1024), 2: measured(2, 0.5, 2048)}
    rows = made(found, mode="weak").rows
    assert rows[1].efficiency == pytest.approx(0.8)
    assert rows[1].speedup == pytest.approx(1.6)


def test_a_speed_up_that_was_not_measured_is_not_published() -> None:
    """Without one rank there is none, and it is said why."""
    found = made({2: measured(2, 0.25, 2048), 4: measured(4, 0.2, 2048)}, usable=8)
    assert [row.speedup for row in found.rows] == [None, None]
    assert [row.efficiency for row in found.rows] == [None, None]
    assert any("add 1 to --ranks" in note for note in found.notes)
    failed = made({2: measured(2, 0.25, 2048)}, usable=8, failed={1: "exit code 1: no luck"})
    assert failed.rows[1].speedup is None
    assert "✗ 1 rank: exit code 1: no luck" in text(failed)


def test_more_ranks_than_cores_are_marked() -> None:
    """Their figures are there, with a warning; on a GPU there is none."""
    found = {1: measured(1, 0.4, 2048), 4: measured(4, 0.4, 2048)}
    lines = text(made(found))
    (row,) = [line for line in lines if line.split()[:2] == ["4", "4"]]
    assert "1.00*" in row
    assert "25%*" in row
    assert any(line.startswith("* 4 ranks on 2 cores: they take turns") for line in lines)
    on_gpu = {1: measured(1, 0.4, 2048, "cuda"), 4: measured(4, 0.1, 2048, "cuda")}
    assert not any(row.oversubscribed for row in made(on_gpu).rows)


def test_volume_by_formula_stands_beside_what_was_counted() -> None:
    """And the difference that is gloo's own is explained."""
    found = made({2: measured(2, 0.25, 2048)}, trainer="fsdp2")
    assert (found.rows[0].sent_bytes, found.rows[0].counted_sent_bytes) == (3.4e6, 3.5e6)
    assert any("gloo reduces and scatters by an all-reduce" in note for note in found.notes)


def text(found: Scaling, width: int = 80, utf8: bool = True) -> list[str]:
    return [untoned(line) for line in scale_text(found, width, utf8)]


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    """A line for each number of ranks, with peak and volume, on 80 columns too."""
    found = {1: measured(1, 0.4, 2048), 2: measured(2, 0.25, 2048), 4: measured(4, 0.4, 2048)}
    lines = text(made(found), width)
    assert max(map(len, lines)) <= width
    (title,) = [
        line for line in lines if "T1/TR" in line and "efficiency" in line and "peak" in line
    ]
    assert "counted" in title
    assert sum(line.endswith("tok/s") for line in lines) == 3
    assert max(map(len, text(made(found), width, utf8=False))) <= width


def test_json_is_one_document() -> None:
    """What is not known is null."""
    document = json.loads(jsontext.dumps(made({2: measured(2, 0.25, 2048)})))
    assert document["mode"] == "strong"
    assert document["rows"][0]["speedup"] is None
    assert document["rows"][0]["peak_bytes_by_rank"] == [40_000_000, 40_000_001]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ranks", "0"],
        ["--ranks", "1,-2"],
        ["--ranks", "1,1"],
        ["--ranks", "1,two"],
        ["--ranks", ""],
        ["--ranks", "1,99999"],
        ["--mode", "magic"],
        ["--trainer", "zero"],
        ["--batch-size", "0"],
        ["--ranks", "1,2,4", "--batch-size", "6"],
        ["--layers", "0"],
        ["--updates", "0"],
        ["--dim", "10", "--heads", "4"],
        ["--precision", "fp8"],
        ["--text", "/does/not/exist"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on stdout, and nothing is started."""
    assert main(["scale", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_what_nobody_chose_is_told_before_it_runs() -> None:
    """On how many ranks, how much, and how to say otherwise."""
    case = Case(trainer="ddp", layers=4, dim=128, heads=4, seq_len=128, batch_size=16)
    told = scale.planned(
        {ranks: Job(cases=[case], updates=20, untimed=5) for ranks in (1, 2)}, "ddp"
    )
    assert "on 1 and then 2 ranks, 40 updates" in told
    assert "--ranks" in told
    assert "\n" not in told
