"""``rankscope compare``: DDP beside FSDP2, the same batches, in bytes, time and losses."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, number
from rankscope.tui.experiments import options as shared

HELP = "train with DDP and with FSDP2 on the same batches, and compare memory, time and losses"


def options(parser: OneLineParser) -> None:
    whole = number(1, 1024)
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="processes (2)")
    for name, read, what, default, help_ in (
        ("layers", whole, "whole numbers", "4", "of the model (4); several: 2,4,8"),
        ("precision", shared.one_of(("fp32", "bf16")), "", "fp32", "fp32, bf16, or both"),
        (
            "recompute",
            shared.one_of(("none", "selective", "full")),
            "",
            "none",
            "activation checkpointing: none, selective, full, or several",
        ),
        (
            "reshard-after-forward",
            shared.one_of(("yes", "no")),
            "",
            "yes",
            "whether FSDP2 frees a block's parameters after forward: yes, no, or both: yes,no",
        ),
    ):
        parser.add_argument(
            f"--{name}",
            type=shared.several(read, what),
            default=shared.several(read, what)(default),
            metavar="LIST",
            help=help_,
        )
    shared.add_model(parser)
    parser.add_argument(
        "--batch-size", type=number(1, shared.MOST), default=8, metavar="N", help="of a rank (8)"
    )
    parser.add_argument(
        "--memory-limit",
        type=shared.size,
        metavar="SIZE",
        help="tensors that a rank may have at once, such as 20MB: what needs more is refused",
    )
    shared.add_run(parser, updates=10)


def run(given: Namespace) -> int:
    from rankscope.tui.demo.plan import check_ranks
    from rankscope.tui.experiments.compare import compare
    from rankscope.tui.experiments.comparing import cases
    from rankscope.tui.experiments.running import check_torch

    check_ranks(given.ranks)
    shared.check_model(given)
    asked = cases(
        layers=given.layers,
        precision=given.precision,
        recompute=given.recompute,
        reshard=[one == "yes" for one in given.reshard_after_forward],
        dim=given.dim,
        heads=given.heads,
        seq_len=given.seq_len,
        batch_size=given.batch_size,
        most=shared.MOST_CASES,
    )
    check_torch()
    found = compare(shared.job(given, asked, given.memory_limit), given.ranks, json=given.json)
    if given.json:
        from rankscope.protocol import jsontext

        print(jsontext.dumps(found))
    else:
        from rankscope.tui.text.compare import compare_text
        from rankscope.tui.text.output import utf8, width, write

        write(compare_text(found, width(), utf8()))
    return Exit.FINE
