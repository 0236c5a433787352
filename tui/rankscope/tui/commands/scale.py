"""``rankscope scale``: the same training on more and more ranks, and what it gains."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, number
from rankscope.tui.experiments import options as shared

HELP = "train on 1, 2, 4, … ranks and measure time, efficiency, memory and volume"


RANKS = [1, 2]
"""Where nobody says on how many."""


def options(parser: OneLineParser) -> None:
    count = shared.several(number(1), "whole numbers")
    parser.add_argument(
        "--ranks",
        type=count,
        default=None,
        metavar="LIST",
        help="numbers of ranks, such as 1,2,4 (1,2)",
    )
    parser.add_argument(
        "--mode",
        choices=("strong", "weak"),
        default="strong",
        help="strong: an update has the same sequences on any number of ranks; weak: a rank has",
    )
    parser.add_argument("--trainer", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument(
        "--batch-size",
        type=number(1, shared.MOST),
        metavar="N",
        help="sequences of an update on all ranks together (strong: 16) or of a rank (weak: 8)",
    )
    parser.add_argument(
        "--layers", type=number(1, 1024), default=4, metavar="N", help="of the model (4)"
    )
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    shared.add_model(parser)
    shared.add_run(parser, updates=20)


def run(given: Namespace) -> int:
    from rankscope.protocol.experiments import Case
    from rankscope.tui.demo.plan import check_ranks
    from rankscope.tui.experiments.running import check_torch
    from rankscope.tui.experiments.scale import planned, scale
    from rankscope.tui.experiments.scaling import batch_sizes
    from rankscope.tui.text.output import complain

    ranks = sorted(given.ranks or RANKS)
    for count in ranks:
        check_ranks(count)
    shared.check_model(given)
    batches = batch_sizes(given.mode, ranks, given.batch_size)
    check_torch()
    jobs = {
        count: shared.job(
            given,
            [
                Case(
                    trainer=given.trainer,
                    layers=given.layers,
                    dim=given.dim,
                    heads=given.heads,
                    seq_len=given.seq_len,
                    batch_size=batch,
                    precision=given.precision,
                )
            ],
            predict=False,
        )
        for count, batch in batches.items()
    }
    if given.ranks is None:
        complain(f"rankscope: {planned(jobs, given.trainer)}")
    found = scale(jobs, given.mode, json=given.json)
    if given.json:
        from rankscope.protocol import jsontext

        print(jsontext.dumps(found))
    else:
        from rankscope.tui.text.output import utf8, width, write
        from rankscope.tui.text.scale import scale_text

        write(scale_text(found, width(), utf8()))
    return Exit.PROBLEM if any(row.failed for row in found.rows) else Exit.FINE
