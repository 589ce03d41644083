"""Training loops of other packages, recorded without an edit; skipped where the package is not installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from framework_runs import FLOAT32_BYTES, Script, assert_recorded_as_it_is, record

pytestmark = pytest.mark.slow

TWO_LAYERS = (64 * 128 + 128) + (128 * 8 + 8)
GPT2 = 128 * 64 + 32 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64
"""Word and position embeddings, two blocks, the last norm; the head is the word embedding."""

USUAL_WAY = "pip install 'stepscope[frameworks]' (minutes, beside an installed torch)"
HOW = {
    "deepspeed": "DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed wheel (it has no wheel of its own)"
}


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(package) is None,
        reason=f"needs {package}: {HOW.get(package, USUAL_WAY)}",
    )


@needs("accelerate")
def test_accelerates_micro_batches_are_one_step(tmp_path: Path) -> None:
    script = Script(("accelerate_loop.py",), TWO_LAYERS, (37_408,))
    recorded = record(script, tmp_path / "run")
    assert_recorded_as_it_is(script, recorded)
    assert recorded.others() == set()


@needs("transformers")
@needs("accelerate")
def test_the_hugging_face_trainer_asks_ddp_for_unused_parameters_and_counts_tokens(tmp_path: Path) -> None:
    script = Script(("hf_trainer.py", "--accumulate", "2"), GPT2, (441_344,))
    recorded = record(script, tmp_path / "run")
    assert_recorded_as_it_is(script, recorded)
    assert recorded.others() == {("all_reduce", "unused-parameter-map"), ("all_gather", "metric")}
    assert [module.find_unused_parameters for module in recorded.metadata.ddp] == [True]


@needs("lightning")
@pytest.mark.parametrize("accumulate", ["1", "2"])
def test_lightnings_trainer_steps_where_its_optimizer_does(tmp_path: Path, accumulate: str) -> None:
    """It runs forward and backward inside the optimizer's step, as a closure, and reduces what is logged."""
    script = Script(("lightning_fit.py", "--accumulate", accumulate), TWO_LAYERS, (37_408,))
    recorded = record(script, tmp_path / "run")
    assert_recorded_as_it_is(script, recorded)
    assert recorded.others() == {("all_reduce", "metric"), ("barrier", "barrier"), ("broadcast", "other")}
    metrics = [c for c in recorded.audit.collectives if c.role == "metric"]
    assert {c.phase for c in metrics} == {"forward"}


@dataclass(frozen=True)
class Stage:
    """DeepSpeed's ZeRO of one stage: what a step reduces, and what it sends beside."""

    arguments: tuple[str, ...]
    gradients: tuple[tuple[str, str, int], ...]
    """Kind, phase and bytes, the small ones first."""
    others: frozenset[tuple[str, str]] = frozenset({("all_gather", "parameter"), ("all_reduce", "metric")})


WITHOUT_ZERO = Stage(
    ("--stage", "0"), (("all_reduce", "forward", 37_408),), others=frozenset({("all_reduce", "metric")})
)
ZERO_1 = Stage(("--stage", "1"), (("all_reduce", "forward", 4_640), ("all_reduce", "forward", 32_768)))
ZERO_2 = Stage(("--stage", "2"), (("all_reduce", "backward", 4_640), ("all_reduce", "forward", 32_768)))
ZERO_2_TWO_MICRO_BATCHES = Stage(
    ("--stage", "2", "--accumulate", "2"),
    (*2 * (("all_reduce", "backward", 4_640),), *2 * (("all_reduce", "forward", 32_768),)),
)
ZERO_3 = Stage(
    ("--stage", "3"),
    (
        ("reduce_scatter", "forward", 512),
        ("reduce_scatter", "backward", 4_128),
        ("reduce_scatter", "backward", 32_768),
    ),
)


@needs("deepspeed")
@pytest.mark.parametrize(
    "stage",
    [WITHOUT_ZERO, ZERO_1, ZERO_2, ZERO_2_TWO_MICRO_BATCHES, ZERO_3],
    ids=lambda stage: " ".join(stage.arguments),
)
def test_deepspeeds_engine_marks_nothing_and_is_told_by_what_it_sends(tmp_path: Path, stage: Stage) -> None:
    """What fills no bucket in backward is reduced after it; parameters are gathered as the next step begins."""
    script = Script(("deepspeed_zero.py", *stage.arguments), TWO_LAYERS, ())
    recorded = record(script, tmp_path / "run")
    assert recorded.metadata.recorded_steps == [6, 7, 8]
    gradients = recorded.gradients()
    assert set(gradients) == {(rank, step) for rank in (0, 1) for step in (6, 7, 8)}
    for found in gradients.values():
        sent = [(c.kind, c.phase, c.bytes) for c in sorted(found, key=lambda c: c.bytes or 0)]
        assert sent == list(stage.gradients)
        times_sent = 2 if "--accumulate" in stage.arguments else 1
        assert sum(c.bytes or 0 for c in found) == times_sent * FLOAT32_BYTES * TWO_LAYERS
    assert recorded.others() == stage.others
    assert recorded.audit.warnings == []
