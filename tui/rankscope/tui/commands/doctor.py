"""``rankscope doctor``: what works on this machine."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json

HELP = "what works here: versions, ports, GPU, py-spy; exit 1 when something must be mended"


def options(parser: OneLineParser) -> None:
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.tui.doctor.checks import examine
    from rankscope.tui.doctor.words import findings_text
    from rankscope.tui.text.output import write

    findings = examine()
    if given.json:
        print(jsontext.dumps({"checks": findings}))
    else:
        write(findings_text(findings))
    bad = any(not finding.works and finding.essential for finding in findings)
    return Exit.PROBLEM if bad else Exit.FINE
