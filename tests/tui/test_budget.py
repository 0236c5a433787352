"""``rankscope budget`` as it is used."""

import json
from pathlib import Path

import pytest

from rankscope.tui.cli import main
from rankscope.tui.words.quantities import parse_bytes, parse_count


def test_the_table_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With the keys that others rely on."""
    assert main(["budget", "7B", "--ranks", "8", "--device", "40GB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state_bytes"] == {
        "single": 112e9,
        "ddp": 112e9,
        "zero1": 38.5e9,
        "zero2": 26.25e9,
        "fsdp": 14e9,
    }
    assert found["largest_params"]["fsdp"] == 20_000_000_000
    assert found["sent_bytes"]["fsdp"] == 36.75e9


def test_the_table_says_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """A line a scheme, in decimal GB."""
    assert main(["budget", "7e9", "--device", "40GB", "--shard", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ddp = next(line for line in lines if line.startswith("DDP"))
    assert "112 GB" in ddp
    assert "no" in ddp
    assert "2.50 G" in ddp
    hybrid = next(line for line in lines if line.startswith("hybrid"))
    assert "28 GB" in hybrid
    assert "yes" in hybrid
    assert max(map(len, lines)) <= 80


def test_terms_may_be_those_that_a_comparison_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The largest of each; one that is given counts more, and both are told."""
    kept = tmp_path / "compare.json"
    rows = [
        {"activation_bytes": 3e9, "gather_bytes": 0.0, "final_loss": "nan"},
        {"activation_bytes": 2e9, "gather_bytes": 1e9},
    ]
    kept.write_text(json.dumps({"ranks": 2, "rows": rows}))
    assert main(["budget", "7B", "--measured", str(kept), "--json"]) == 0
    peak = json.loads(capsys.readouterr().out)["peak_bytes"]
    assert (peak["ddp"], peak["fsdp"]) == (115e9, 18e9)
    assert main(["budget", "7B", "--measured", str(kept), "--gather", "2GB"]) == 0
    out = capsys.readouterr().out
    assert "on top in a step: 3 GB of activations, 2 GB of what is gathered" in out
    assert max(map(len, out.splitlines())) <= 80


NEGATIVE = '{"rows": [{"activation_bytes": 5, "gather_bytes": -1}]}'
DEEP = '{"rows": [{"activation_bytes": 5, "x": ' + "[" * 100_000 + "]" * 100_000 + "}]}"


@pytest.mark.parametrize(
    "content",
    [None, "", "[]", '{"rows": []}', '{"rows": [{}]}', "\xff{", NEGATIVE, DEEP],
    ids=["none", "empty", "list", "no-rows", "no-terms", "no-text", "negative", "deep"],
)
def test_a_file_without_measurements_is_refused(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line that says how to make one."""
    kept = tmp_path / "compare.json"
    if content is not None:
        kept.write_text(content, encoding="latin-1")
    assert main(["budget", "7B", "--measured", str(kept)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert str(kept) in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["0"],
        ["-7e9"],
        ["nan"],
        ["1e999"],
        ["1e308"],
        ["1", "--activation", "1e308", "--other", "1e308"],
        ["seven"],
        ["7e9", "--ranks", "0"],
        ["7e9", "--ranks", "-1"],
        ["7e9", "--shard", "3"],
        ["7e9", "--device", "40XB"],
        ["7e9", "--device=-1"],
        ["7e9", "--device", "1GB", "--activation", "2GB"],
        ["7e9", "--bytes", "1,2"],
        ["7e9", "--bytes", "0,0,0"],
        ["7e9", "--bytes", "1,inf,2"],
        ["7e9", "--bytes", "1,-1,2"],
        ["7e9", "--mode", "magic"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on stdout."""
    assert main(["budget", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("40GB", 40e9), ("40 gib", 40 * 2**30), ("4e9", 4e9), ("512MiB", 2**29), ("1.5k", 1500)],
)
def test_sizes_are_read_as_people_write_them(text: str, value: float) -> None:
    """Decimal units, and binary ones with an i."""
    assert parse_bytes(text) == value


def test_counts_are_read_as_people_write_them() -> None:
    """A billion is B."""
    assert (parse_count("7B"), parse_count("350M"), parse_count("1e6")) == (7e9, 350e6, 1e6)
