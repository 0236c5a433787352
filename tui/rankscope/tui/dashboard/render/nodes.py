"""What stands beside a node's ranks: who is in trouble, memory, GPU, sentinel."""

from statistics import fmean

from rankscope.protocol.shapes import Node, NodesInShort, Overview, RankRow
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Line, Span, first_that_fit, join, line, width_of
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import goes_on

NAMED_AT_MOST = 2
"""Ranks in trouble that are spelled out on a node's line; the others are counted."""


def node_details(node: Node, picture: Picture, width: int) -> Line:
    """In ``width`` columns, the most important first; what does not fit is left out."""
    if width < 8:
        return ()
    for where in (True, False):  # in which phase they are is said only where there is room
        troubled = _troubled(node, picture, where)
        if width_of(join(troubled, "   ")) <= width:
            break
    return first_that_fit([*troubled, *_readings(node, picture)], width, "   ")


def _troubled(node: Node, picture: Picture, where: bool) -> list[Line]:
    """``rank 5 SIGKILL   ranks 4 6 7 waiting``: the ranks that are not well, by what they are."""
    by_word: dict[tuple[str, str], list[int]] = {}
    for rank in node.ranks:
        mark = picture.mark(rank)
        if mark.tone in ("bad", "warn"):
            by_word.setdefault((mark.tone, mark.word), []).append(rank)
    parts: list[Line] = []
    for (tone, word), ranks in sorted(by_word.items()):
        names = numbers.ranks(ranks, 4)
        row = picture.rows.get(ranks[0])
        age = ""
        if tone == "bad" and len(ranks) == 1 and row is not None:
            age = _standing(row, word, picture, where)
        parts.append(line(Span(f"{names} {word}{age}", "bad" if tone == "bad" else "warn")))
    return parts


def _standing(row: RankRow, word: str, picture: Picture, where: bool) -> str:
    """In which phase a rank in trouble stands, and for how long; since which step of one that has
    gone on from there: its present phase is not that of the fault."""
    blaming = (each for each in picture.findings if row.rank in each.ranks)
    fault = next((each for each in blaming if each.severity == "critical"), None)
    if fault is not None and goes_on(row, fault):
        return "" if fault.step is None else f" since step {numbers.count(fault.step)}"
    age = f" in {row.phase}" if where and row.phase not in ("ended", "other", word) else ""
    # Of a rank that has ended it would be how long its last phase had lasted.
    going = row.process != "ended" and not (picture.ended or picture.unknown)
    if row.phase_s is not None and going:
        age += f" {numbers.age(row.phase_s)}"
    return age


def bare_ranks(ranks: list[int], limit: int = 4) -> str:
    """``4 6-7`` without the noun."""
    return numbers.ranks(ranks, limit).partition(" ")[2]


def _readings(node: Node, picture: Picture) -> list[Line]:
    parts = [_memory(node), *_gpu(node)]
    if node.load_1min is not None and not node.gpus:
        parts.append(line(Span("load ", "dim"), f"{node.load_1min:.1f}"))
    if not _over(picture):
        parts.append(sentinel(node))
    return parts


def _memory(node: Node) -> Line:
    if node.memory_peak_bytes is None:
        return ()
    spans: list[str | Span] = [
        Span("peak ", "dim"),
        f"{numbers.size_bytes(node.memory_peak_bytes):>7}",
    ]
    totals = [gpu.memory_total_bytes for gpu in node.gpus if gpu.memory_total_bytes]
    limit = totals[0] if totals else node.memory_limit_bytes
    if limit:
        spans.append(Span(f" of {numbers.size_bytes(limit)}", "dim"))
    return line(*spans)


def _gpu(node: Node) -> list[Line]:
    if not node.gpus:
        return [line(Span("GPU ", "dim"), "none")] if node.gpu_note else []
    used = [g.utilisation_percent for g in node.gpus if g.utilisation_percent is not None]
    warm = [g.temperature_c for g in node.gpus if g.temperature_c is not None]
    power = [g.power_w for g in node.gpus if g.power_w is not None]
    errors = sum((g.ecc_uncorrected or 0) + (g.nvlink_errors or 0) for g in node.gpus)
    parts = [line(Span("GPU ", "dim"), f"{fmean(used):>3.0f} %" if used else numbers.DASH)]
    if warm:
        parts.append(line(f"{max(warm):.0f} °C"))
    if errors:
        parts.append(line(Span(f"{numbers.plural(errors, 'GPU error')}", "bad")))
    reasons = sorted({reason for g in node.gpus for reason in g.throttle_reasons})
    if reasons:
        parts.append(line(Span(f"throttled: {' '.join(reasons)}", "warn")))
    if power:
        parts.append(line(f"{sum(power):.0f} W"))
    return parts


def _over(picture: Picture) -> bool:
    """Whether nothing is watched any more: then a sentinel that is gone is as it should be."""
    return picture.ended or picture.unknown or picture.snapshot.replay


def sentinel(node: Node) -> Line:
    match node.sentinel:
        case "up":
            return line(Span("●", "good"), Span(" sentinel", "dim"))
        case "silent":
            return line(Span("◌ sentinel silent", "warn"))
        case _:
            return line(Span("✗ no sentinel", "warn"))


def notes(overview: Overview | None) -> list[str]:
    """Why something cannot be shown, each reason once."""
    if overview is not None and overview.nodes_in_short is not None:
        short = overview.nodes_in_short
        return [
            text if number == short.count else f"{text} ({numbers.plural(number, 'node')})"
            for text, number in short.notes.items()
        ]
    nodes = [] if overview is None else overview.nodes
    said: dict[str, list[str]] = {}
    for node in nodes:
        if node.gpu_note and not node.gpus:
            said.setdefault(f"GPU: {node.gpu_note.removeprefix('none: ')}", []).append(node.host)
        if node.stack_note:
            said.setdefault(f"stacks: {node.stack_note}", []).append(node.host)
    return [
        text if len(hosts) == len(nodes) else f"{text} ({', '.join(hosts[:3])})"
        for text, hosts in said.items()
    ]


def fleet(picture: Picture) -> Line:
    """All nodes in one line, where there is no room for a line each."""
    overview = picture.overview
    short = _in_short(overview)
    parts = [line(numbers.plural(short.count, "node"))]
    if overview is not None and overview.memory_peak_bytes is not None:
        parts.append(line(Span("peak ", "dim"), numbers.size_bytes(overview.memory_peak_bytes)))
    if short.gpu_utilisation_percent is not None:
        used = f"{short.gpu_utilisation_percent:.0f} % mean"
        parts.append(line(Span("GPU ", "dim"), used))
    if short.gpu_temperature_c is not None:
        parts.append(line(f"{short.gpu_temperature_c:.0f} °C max"))
    if _over(picture):
        return join(parts, "   ")
    if short.without_sentinel:
        more = short.without_sentinel - len(short.hosts)
        shown = ", ".join(short.hosts) + (f" and {more} more" if more > 0 else "")
        parts.append(line(Span(f"no sentinel: {shown}", "warn")))
    else:
        parts.append(line(Span("●", "good"), Span(" all sentinels", "dim")))
    return join(parts, "   ")


def _in_short(overview: Overview | None) -> NodesInShort:
    if overview is None:
        return NodesInShort(count=0)
    if overview.nodes_in_short is not None:
        return overview.nodes_in_short
    gpus = [gpu for node in overview.nodes for gpu in node.gpus]
    used = [gpu.utilisation_percent for gpu in gpus if gpu.utilisation_percent is not None]
    warm = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    down = [node.host for node in overview.nodes if node.sentinel != "up"]
    return NodesInShort(
        count=len(overview.nodes),
        gpus=len(gpus),
        gpu_utilisation_percent=fmean(used) if used else None,
        gpu_temperature_c=max(warm, default=None),
        without_sentinel=len(down),
        hosts=down[:3],
    )
