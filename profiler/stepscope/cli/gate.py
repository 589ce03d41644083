"""Gates: what an audit must not be, and what must not have got worse; told to whoever runs the job."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.audit.result import Audit
from stepscope.cli.stored import load_audit, stored_file
from stepscope.compare.alike import not_alike, side_of
from stepscope.compare.baseline import hold
from stepscope.compare.samples import counted
from stepscope.errors import GateFailed, InputError
from stepscope.plugins import installed, load
from stepscope.trace.files import local

LABELS = ("comm-bound", "comm-sensitive", "compute-bound", "inconclusive", "no-communication", "host-bound")
"""What --fail-on takes; host-bound is a flag that stands beside a label."""

ANNOTATIONS = "stepscope.annotations"
GATE_OPTIONS = ("fail_on", "baseline", "tolerance", "annotate")
DEFAULT_TOLERANCE = 0.05
AUTO, NONE = "auto", "none"


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """`--fail-on`, `--baseline`, `--tolerance` and `--annotate`."""
    parser.add_argument(
        "--fail-on",
        type=labels,
        default=(),
        metavar="LABEL,...",
        help=f"exit with 1 on these: {', '.join(LABELS)}",
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="audit.json or run directory: exit with 1 where the cost of communication, the gradients' exposed time "
        "or their overlap got worse than there, by more than --tolerance and by more than noise",
    )
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        metavar="PERCENT",
        help="points of the step (of gradient communication for the overlap) that may get lost (default 5%%)",
    )
    parser.add_argument(
        "--annotate",
        default=AUTO,
        metavar="FORMAT",
        help="say verdict, findings and failed gates on standard error as github shows them (default there), or none",
    )


@dataclass(frozen=True, slots=True)
class Gate:
    """What one command line asks of its audit."""

    fail_on: Sequence[str]
    baseline: Audit | None
    tolerance: float
    annotate: str | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Gate:
        """Read what the options name, before the work that is to be judged. Raises InputError."""
        annotate = args.annotate
        if annotate == AUTO:
            annotate = "github" if os.environ.get("GITHUB_ACTIONS") == "true" else NONE
        known = installed(ANNOTATIONS)
        if annotate != NONE and annotate not in known:
            raise InputError(f"no annotations {annotate!r}; there are {', '.join(sorted({*known, NONE}))}")
        if args.tolerance is not None and args.baseline is None:
            raise InputError(
                "--tolerance is how much worse than --baseline may be; name one, or leave it out"
            )
        return cls(
            fail_on=args.fail_on,
            baseline=None if args.baseline is None else _baseline(args.baseline),
            tolerance=DEFAULT_TOLERANCE if args.tolerance is None else args.tolerance,
            annotate=None if annotate == NONE else annotate,
        )

    def hold(self, made: Audit) -> None:
        """Say how the audit holds against the gates. Raises GateFailed where it does not."""
        failures = self._labels(made)
        cautions: list[str] = []
        if self.baseline is not None:
            sides = side_of(self.baseline, "the baseline"), side_of(made, "this audit")
            cautions += (f"baseline: {warning}" for warning in not_alike(self.baseline, made, *sides))
            for one in hold(self.baseline, made, self.tolerance):
                sentence = f"baseline: {one.sentence}"
                (failures if one.failed else cautions if one.untold else []).append(sentence)
                if not one.failed and not one.untold:
                    _say(sentence)
        for caution in cautions:
            _say(caution)
        if self.annotate is not None:
            load(installed(ANNOTATIONS)[self.annotate])(made, failures, cautions, sys.stderr)
        if failures:
            raise GateFailed("; ".join(failures))

    def _labels(self, made: Audit) -> list[str]:
        hit = [label for label in labels_of(made) if label in self.fail_on]
        return [f"the verdict is {hit[0]}, one of --fail-on {','.join(self.fail_on)}"] if hit else []


def labels_of(made: Audit) -> tuple[str, ...]:
    """What --fail-on compares with: the label as one word, and host-bound where the flag is set."""
    verdict = made.verdict
    return (verdict.label.replace(" ", "-"), *(("host-bound",) if verdict.host_bound else ()))


def labels(text: str) -> tuple[str, ...]:
    """The labels in an option's value."""
    names = tuple(name.strip().replace(" ", "-") for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in LABELS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"no label {(unknown or [text])[0]!r}; there are {', '.join(LABELS)}"
        )
    return names


def tolerance(text: str) -> float:
    """A share written as a percentage, `5%`, or as a number below 1."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        meant = f"{text}% for {text} %" if 1 <= value < 100 and not text.endswith("%") else "5% (or 0.05)"
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage below 100; write {meant}")
    return value


def _baseline(path: str) -> Audit:
    file = stored_file(path)
    if file is None:
        why = "no audit in it" if local(path).is_file() else "no audit.json there"
        raise InputError(f"--baseline {path}: {why}; make one with `stepscope audit PATH --json FILE`")
    baseline = load_audit(file)
    if not counted(baseline):
        raise InputError(
            f"--baseline {path} has no step that counts, so nothing can be held against it; make one of a run that has"
        )
    return baseline


def _say(line: str) -> None:
    """On standard error, beside the report."""
    print(f"stepscope: {line}", file=sys.stderr)
