"""``rankscope demo``: a real training run, watched."""

from argparse import Namespace
from pathlib import Path

from rankscope.tui.arguments import OneLineParser, add_json

HELP = "train a small model for real on this machine, with the dashboard on screen"


def options(parser: OneLineParser) -> None:
    from rankscope.tui.demo.plan import STEPS

    parser.add_argument("--trainer", default="ddp", help="ddp, or fsdp2 where it is available")
    parser.add_argument("--ranks", type=int, default=2, help="training processes (2)")
    parser.add_argument("--steps", type=int, help=f"updates of the parameters ({STEPS})")
    parser.add_argument(
        "--text", type=Path, metavar="PATH", help="train on this, not on Python's own library"
    )
    parser.add_argument(
        "--headless", action="store_true", help="progress in lines instead of the dashboard"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.tui.demo.plan import plan
    from rankscope.tui.demo.show import show_demo

    what = plan(given.trainer, given.ranks, given.steps, given.text)
    return show_demo(what, headless=given.headless or given.json, json=given.json)
