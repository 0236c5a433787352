"""``rankscope drill``: faults on purpose, and whether they are called what they are."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from rankscope.protocol.exits import UserError
from rankscope.tui.arguments import OneLineParser, add_json, number

HELP = "inject faults into real runs and compare each verdict with the truth"
WAIT_S = 20


def options(parser: OneLineParser) -> None:
    parser.usage = "rankscope drill [FAULT…] [OPTIONS] [--script FILE [-- ARGUMENTS…]]"
    parser.add_argument(
        "faults",
        nargs="*",
        metavar="FAULT",
        help="a fault's name, or FAULT@rank:step[:where]; without any, every fault once",
    )
    parser.add_argument("--trainer", default="ddp", help="ddp or fsdp2 (ddp)")
    parser.add_argument("--ranks", type=int, default=2, help="training processes (2)")
    parser.add_argument("--at", default="last", help="on which rank: first, middle, last or all")
    parser.add_argument(
        "--attach", default="full", help="full, or plain: a loop that only calls attach()"
    )
    parser.add_argument("--script", type=Path, metavar="FILE", help="a training script of yours")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="keep rows here; a drill goes on where it ended"
    )
    parser.add_argument(
        "--wait",
        type=number(1),
        default=WAIT_S,
        metavar="SECONDS",
        help=f"for a verdict, after each fault ({WAIT_S})",
    )
    parser.add_argument("--list", action="store_true", help="print every fault and end")
    add_json(parser)


def parse(parser: OneLineParser, arguments: Sequence[str]) -> Namespace:
    """What follows ``--`` is the script's."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(list(arguments[:end]))
    given.arguments = tuple(arguments[end + 1 :])
    if given.arguments and given.script is None:
        raise UserError("drill: arguments after -- are a script's; name it: --script FILE -- …")
    return given


def run(given: Namespace) -> int:
    from rankscope.tui.drill.plan import Setting, plan

    if given.list:
        from rankscope.tui.drill.listing import listing
        from rankscope.tui.text.output import write

        write(listing())
        return 0
    setting = Setting(given.trainer, given.ranks, given.attach, given.script, given.arguments)
    if given.script is not None:
        from rankscope.tui.drill.scripts import plan_script

        trials = plan_script(given.faults, given.at, setting)
    else:
        trials = plan(given.faults, given.at, setting)
    from rankscope.tui.drill.show import drill

    return drill(trials, setting, given.out, wait_s=float(given.wait), json=given.json)
