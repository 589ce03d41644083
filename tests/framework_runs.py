"""What tests of frameworks share: one recorded run of a script, and what its gradients should be."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recordings import Finished, run
from stepscope.audit.result import Audit, Collective
from stepscope.capture.metadata import RunMetadata, load_run

FLOAT32_BYTES = 4
LABELS = ("comm-bound", "comm-sensitive", "compute-bound")


@dataclass(frozen=True)
class Script:
    """A script, what it is to be started with, and the gradient collectives of each of its steps."""

    arguments: tuple[str, ...]
    parameters: int
    """Of its models, as their layers say."""
    gradient_bytes: tuple[int, ...]
    """Of each gradient collective of a step, the small ones first."""
    kind: str = "all_reduce"
    flags: tuple[str, ...] = ()
    steps: tuple[int, ...] = (6, 7, 8)


@dataclass(frozen=True)
class Recorded:
    """A script's run, audited."""

    finished: Finished
    metadata: RunMetadata
    audit: Audit

    def gradients(self) -> dict[tuple[int, int], list[Collective]]:
        """The gradient collectives of each rank and step."""
        found: dict[tuple[int, int], list[Collective]] = defaultdict(list)
        for collective in self.audit.collectives:
            if collective.gradient and collective.rank is not None and collective.step is not None:
                found[collective.rank, collective.step].append(collective)
        return found

    def others(self) -> set[tuple[str, str | None]]:
        """Kind and role of all that carries no gradient."""
        return {(c.kind, c.role) for c in self.audit.collectives if not c.gradient}


def record(script: Script, run_dir: Path) -> Recorded:
    finished = run("--out", run_dir, "--nproc-per-node", "2", *script.flags, *script.arguments)
    assert finished.code == 0, finished.stderr
    audit = msgspec.json.decode((run_dir / "audit.json").read_bytes(), type=Audit)
    return Recorded(finished, load_run(run_dir), audit)


def assert_recorded_as_it_is(script: Script, recorded: Recorded) -> None:
    """The steps are the optimizer's, every step's gradients are those of the model, and there is a verdict."""
    assert recorded.finished.leftovers == []
    assert recorded.metadata.recorded_steps == list(script.steps)
    for rank in recorded.audit.ranks:
        assert [(step.step, step.valid) for step in rank.steps] == [(step, True) for step in script.steps]
    gradients = recorded.gradients()
    assert set(gradients) == {(rank, step) for rank in (0, 1) for step in script.steps}
    assert sum(script.gradient_bytes) == FLOAT32_BYTES * script.parameters
    for found in gradients.values():
        assert sorted(collective.bytes or 0 for collective in found) == list(script.gradient_bytes)
        assert {(c.kind, c.phase, c.dtype) for c in found} == {(script.kind, "backward", "float32")}
    assert recorded.audit.warnings == []
    verdict = recorded.audit.verdict
    # How long a transfer takes on a busy machine is chance: a few short steps may leave it open between two labels.
    assert verdict.label in LABELS or verdict.reason.startswith("between ")
