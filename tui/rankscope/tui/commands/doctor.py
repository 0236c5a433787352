"""``rankscope doctor``: what works on this machine."""

from rankscope.protocol.exits import Exit
from rankscope.tui.commands.options import Json


def command(json: Json = False) -> int:
    """What works here: versions, ports, GPU, py-spy; exit 1 when something must be mended."""
    from rankscope.protocol import jsontext
    from rankscope.tui.doctor.checks import examine
    from rankscope.tui.doctor.words import findings_text
    from rankscope.tui.text.output import write

    findings = examine()
    if json:
        print(jsontext.dumps({"checks": findings}))
    else:
        write(findings_text(findings))
    bad = any(not finding.works and finding.essential for finding in findings)
    return Exit.PROBLEM if bad else Exit.FINE
