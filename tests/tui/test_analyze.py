"""``rankscope analyze`` from outside."""

import json
from pathlib import Path

from rankscope.tui.text.analysis import analysis_text, ranks_text
from rankscope.tui.text.output import untoned
from support.dumps import job
from support.outside import rankscope, refused
from support.samples import ANALYSIS


def test_the_verdict_is_text_or_json_and_the_exit_code(tmp_path: Path) -> None:
    """1 when somebody hung it, 0 when nobody did."""
    folder, home = tmp_path / "dumps", tmp_path / "home"
    folder.mkdir()
    made = job(3)
    for one in made:
        one.write(folder)
    quiet = rankscope(home, "analyze", str(folder))
    assert quiet.code == 0
    assert quiet.out.startswith("✓ 3 dumps: no rank waits for another")
    for one in made[:2]:
        one.op(done=False).write(folder)
    ran = rankscope(home, "analyze", str(folder), "--json")
    assert (ran.code, ran.err) == (1, "")
    document = json.loads(ran.out)
    assert [finding["ranks"] for finding in document["findings"]] == [[2]]
    text = rankscope(home, "analyze", str(folder))
    assert text.code == 1
    assert text.out.startswith("✗ missing-collective: rank 2 never entered all_reduce #9")


def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    """Exit 2."""
    home = tmp_path / "home"
    refused(rankscope(home, "analyze", str(tmp_path / "gone")), 2, "no such folder")
    refused(rankscope(home, "analyze", str(tmp_path)), 2, "no flight-recorder dump")
    refused(rankscope(home, "analyze"), 2, "DIR")
    refused(rankscope(home, "analyze", str(tmp_path), "--world-size", "0"), 2, "--world-size")
    for one in job(3):
        one.write(tmp_path)
    refused(rankscope(home, "analyze", str(tmp_path), "--world-size", "2"), 2, "of rank 2")


def test_missing_dumps_and_passed_over_files_are_told() -> None:
    """Below the verdict, above the groups."""
    lines = [untoned(line) for line in analysis_text(ANALYSIS, 80)]
    assert lines[0].startswith("✗ ")
    assert "! no dump of rank 3" in lines
    assert "! nccl_trace_rank_3 was passed over: it is empty" in lines
    assert all(len(line) <= 80 for line in lines[lines.index("") :])


def test_many_ranks_are_shortened() -> None:
    """The first six, and how many there are."""
    assert ranks_text([3]) == "rank 3"
    assert ranks_text(list(range(40))) == "ranks 0, 1, 2, 3, 4, 5 … (40 in all)"
