"""What `capture.helper` starts beside each monitored rank: reduces traces, audits them, and packs those that are kept."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from statistics import mean

from zlib_ng import gzip_ng

from stepscope.audit.result import Audit
from stepscope.capture.helper import LOWEST_PRIORITY, Figures, serve
from stepscope.cli.audit import audit_paths
from stepscope.cli.output import write_file
from stepscope.cli.reports import find_report
from stepscope.trace.packed import pack
from stepscope.trace.reader import read


def main() -> None:
    """Serve the rank to its end."""
    os.nice(LOWEST_PRIORITY)
    tasks = {"reduce": _reduce, "audit": _audit, "keep": _keep}
    serve(tasks, sys.stdin.buffer, sys.stdout.buffer)


def _reduce(trace: Path, columns: Path) -> None:
    columns.write_bytes(pack(read(trace)))


def _audit(folder: Path, target: Path) -> Figures:
    made = audit_paths([str(folder)])
    write_file(target, lambda stream: find_report("json").render(made, stream))
    return figures_of(made)


def _keep(trace: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.part")
    with trace.open("rb") as source, gzip_ng.open(draft, "wb") as packed:
        shutil.copyfileobj(source, packed, 1 << 20)
    draft.replace(target)


def figures_of(made: Audit) -> Figures:
    """The few figures of an audit that a monitor tells."""
    steps = [step for rank in made.ranks for step in rank.steps if step.valid]
    verdict, first = made.verdict, made.findings[0] if made.findings else None

    def over_ranks(name: str) -> float | None:
        return mean(getattr(step, name) for step in steps) if steps else None

    return Figures(
        verdict=verdict.label,
        reason=verdict.reason,
        step_ms=verdict.step_ms,
        comm_ms=over_ranks("comm_ms"),
        exposed_ms=over_ranks("exposed_ms"),
        overlap=verdict.overlap_backward,
        overlap_wire=verdict.overlap_backward_wire,
        cost_share=verdict.cost_share,
        cause=first.cause if first else None,
        cause_ms=first.cost_ms if first else None,
    )


if __name__ == "__main__":
    main()
