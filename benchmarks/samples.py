"""Real samples of every report for reports/gallery: `python -m benchmarks.samples`, or `make gallery`.

Records the bundled model on two CPU ranks with its own bucket size and again with one bucket for everything, writes every
report of the first and the comparison of both. --traces FOLDER audits folders of traces that are not ours: their audits are
kept, the traces are not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FORMATS = {
    "terminal": "report.txt",
    "markdown": "report.md",
    "html": "report.html",
    "json": "audit.json",
    "png": "overview.png",
    "svg": "overview.svg",
    "perfetto": "perfetto.json.gz",
}
"""File of each `--report`."""


def main() -> None:
    """Record, and write every sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("reports/gallery"))
    parser.add_argument("--steps", default="8")
    parser.add_argument("--traces", type=Path, help="a folder of folders of traces")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for run, flags in (("default-cap", ()), ("one-bucket", ("--bucket-cap-mb", "1000"))):
            command = (
                "run",
                "--nproc-per-node",
                "2",
                "--steps",
                args.steps,
                "--stop",
                "--out",
                f"runs/{run}",
            )
            stepscope(*command, "gpt", *flags, folder=Path(work))
        sample("runs/default-cap", args.out / "default-cap", Path(work))
        write(
            ("compare", "runs/default-cap", "runs/one-bucket"),
            args.out / "default-cap/compare.txt",
            Path(work),
        )
    for folder in sorted(path for path in args.traces.iterdir() if path.is_dir()) if args.traces else ():
        write(
            ("audit", folder.name, "--report", "markdown"),
            args.out / f"public-traces/{folder.name}.md",
            args.traces,
        )
    print(f"Wrote {args.out}")


def sample(run: str, out: Path, work: Path) -> None:
    """Every report of a recorded run."""
    for report, name in FORMATS.items():
        path = Path(work, name)
        stepscope("audit", run, "--report", report, "-o", path.name, folder=work)
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / name)


def write(command: tuple[str, ...], path: Path, folder: Path) -> None:
    """What a command prints, as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stepscope(*command, folder=folder), encoding="utf-8")


def stepscope(*command: str, folder: Path) -> str:
    """Run it in that folder, so that the paths it prints are short ones; a failure shows what it said."""
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *command],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


if __name__ == "__main__":
    main()
