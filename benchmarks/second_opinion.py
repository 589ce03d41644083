"""What two peers say of real traces, beside us: `python -m benchmarks.second_opinion --traces FOLDER --run RUN`.

Writes reports/gallery/second-opinion/README.md. The traces are public ones and are not part of this repository; FOLDER
has a folder for each, of the names below. RUN is a run directory of `stepscope run`.
"""

from __future__ import annotations

import argparse
import io
import platform
from datetime import UTC, datetime
from pathlib import Path

from stepscope.cli.second_opinion import opinion_of
from stepscope.second_opinion.result import SecondOpinion
from stepscope.trace.discover import find_local_traces
from stepscope_reports.second_opinion_markdown import render

CASES = {
    "hta_resnet_ddp_a100": "ResNet-50 under DDP on A100, rank 0 of 2, three steps (HolisticTraceAnalysis, "
    "tests/data/nccl_parser_config, MIT)",
    "param_dlrm_v100_8ranks": "DLRM under DDP on V100, eight ranks, one step (param, et_replay/tests/inputs/dlrm_kineto, MIT)",
    "hta_dlrm_a100_legacy": "DLRM on A100, rank 3 of 8, event names of 2022 (HolisticTraceAnalysis, "
    "tests/data/trace_diff/control, MIT)",
    "hta_gloo_annotations_only": "gloo annotations and no compute, rank 34 of 300 (HolisticTraceAnalysis, "
    "tests/data/cpu_only, MIT)",
}
RUN = "The bundled GPT under DDP on two CPU ranks with gloo: `stepscope run --nproc-per-node 2 --steps 8 gpt --preset 3m`"

INTRODUCTION = """\
# A second opinion

Made by `python -m benchmarks.second_opinion`, that is by `stepscope second-opinion PATH --report markdown` on each of
these; {when}, Python {python}. The third-party traces are public and not part of this repository; the figures are.

Overlap means something else to each tool. Each ladder below starts at our figure and ends at the peer's, one changed
definition a line, all computed from our own reading of the trace: where the last line is the peer's own figure, the whole
difference is explained.
"""


def main() -> None:
    """Ask about each case and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--run", type=Path, required=True, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("reports/gallery/second-opinion"))
    args = parser.parse_args()
    cases = {title: args.traces / name for name, title in CASES.items()} | {RUN: args.run}
    page = INTRODUCTION.format(when=f"{datetime.now(UTC):%Y-%m-%d}", python=platform.python_version())
    for title, folder in cases.items():
        print(f"asking about {folder.name}", flush=True)
        page += f"\n## {title}\n\n{written(opinion_of(find_local_traces([str(folder)])))}"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "README.md").write_text(page, encoding="utf-8")
    print(f"Wrote {args.out / 'README.md'}")


def written(made: SecondOpinion) -> str:
    """The report as text."""
    stream = io.StringIO()
    render(made, stream)
    return stream.getvalue()


if __name__ == "__main__":
    main()
