"""An audit as workflow commands of GitHub Actions, which shows them beside the job: verdict, findings, failed gates.

The form, and what has to be escaped in it: actions/toolkit, packages/core/src/command.ts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from stepscope.audit.result import Audit
from stepscope_reports.plain import clean
from stepscope_reports.terminal import headline

TITLE = "stepscope"
MANY_FINDINGS = 8
"""GitHub shows ten warnings of a step."""


def render(audit: Audit, failures: Sequence[str], cautions: Sequence[str], stream: TextIO) -> None:
    """Write an error for each gate that failed, a warning for each caution and finding, and the verdict as a notice."""
    lines = [command("error", TITLE, reason) for reason in failures]
    lines += [command("warning", TITLE, caution) for caution in cautions]
    for finding in audit.findings[:MANY_FINDINGS]:
        message = "\n".join([*finding.evidence, f"fix: {finding.fix}"])
        lines.append(command("warning", f"{TITLE}: {finding.cause}", message))
    lines.append(command("notice", TITLE, headline(audit.verdict)))
    stream.writelines(f"{line}\n" for line in lines)


def command(level: str, title: str, message: str) -> str:
    """One workflow command; lines of the message stay lines, and nothing in it can begin another command."""
    text = "\n".join(clean(line) for line in message.splitlines())
    return f"::{level} title={_property(clean(title))}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
