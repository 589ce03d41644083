"""The gradient noise scale: against gradients of single samples, and in a real run against the script's own arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from recordings import SCRIPTS, run
from stepscope.capture.gradient_norms import NORM_STEPS
from stepscope.capture.metadata import RankMetadata, load_run
from stepscope.capture.noise_scale import estimated, noise_scale

RANKS, BATCH, SAMPLES = 4, 8, 20_000


def test_the_estimate_is_the_ratio_that_all_samples_gradients_have() -> None:
    """Linear regression at fixed weights: tr(S) and |G|^2 from each sample's gradient, and from norms of batches of them."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(SAMPLES, 5))
    targets = inputs @ np.array([1.0, -2.0, 0.5, 0.0, 1.5]) + random.normal(size=SAMPLES)
    gradients = 2 * (inputs @ np.full(5, 0.3) - targets)[:, None] * inputs
    true = gradients.var(axis=0).sum() / np.square(gradients.mean(axis=0)).sum()
    own, reduced = [], []
    for _ in range(1000):
        batches = gradients[random.integers(0, SAMPLES, size=(RANKS, BATCH))].mean(axis=1)
        own.append(float(np.square(batches).sum(axis=1).mean()))
        reduced.append(float(np.square(batches.mean(axis=0)).sum()))
    made = estimated(own, reduced, RANKS)
    assert made.steps == 1000
    assert made.rank_batches is not None
    assert made.rank_batches_low is not None
    assert made.rank_batches_high is not None
    assert BATCH * made.rank_batches == pytest.approx(true, rel=0.06)
    assert made.rank_batches_low < true / BATCH < made.rank_batches_high


def test_alike_gradients_have_no_noise_and_noise_alone_has_no_scale() -> None:
    assert estimated([2.0] * 10, [2.0] * 10, 2).rank_batches == 0
    assert estimated([2.0] * 9, [2.0] * 9, 2).rank_batches is None
    lost = estimated([2.0, 2.0, 2.0], [0.8, 0.9, 1.0], 2)
    assert lost.rank_batches is None
    assert lost.problem is not None
    assert lost.problem.startswith("3 steps do not tell the gradient from its noise")


def rank(number: int, norms: list[tuple[float, float]], problem: str | None = None) -> RankMetadata:
    return RankMetadata(
        rank=number,
        local_rank=number,
        world_size=2,
        host="node0",
        pid=1,
        launch_id="",
        state="ended",
        written_ns=0,
        steps_seen=9,
        device="cpu",
        backend="gloo",
        gradient_norms=norms,
        gradient_norms_problem=problem,
    )


def test_steps_are_paired_over_ranks_and_those_of_infinities_left_out() -> None:
    """Of a GradScaler that scales too much the first step is infinite."""
    first = [(float("inf"), float("inf")), *[(3.0, 2.0), (5.0, 4.0)] * 5, (9.0, 9.0)]
    second = [(float("inf"), float("inf")), *[(5.0, 2.0), (7.0, 4.0)] * 5]
    expected = estimated([4.0, 6.0] * 5, [2.0, 4.0] * 5, 2)
    assert expected.rank_batches is not None
    assert noise_scale([rank(0, first), rank(1, second)]) == expected


def test_a_run_that_was_not_asked_has_none_and_one_that_cannot_tell_says_why() -> None:
    assert noise_scale([rank(0, []), rank(1, [])]) is None
    told = noise_scale([rank(0, [], "no DDP"), rank(1, [], "no DDP")])
    assert told is not None
    assert (told.rank_batches, told.problem) == (None, "no DDP")


@pytest.mark.slow
def test_a_real_run_takes_the_norms_that_the_script_works_out_and_trains_as_without(tmp_path: Path) -> None:
    """Two micro-batches, the first under no_sync; clipping, which would change what an optimizer sees, comes later."""
    script = SCRIPTS / "noisy_gradients.py"
    arguments = ("--nproc-per-node", "2", "--noise-scale", "--warmup", "2", "--steps", "1", "--out")
    ended = run(*arguments, tmp_path / "run", script, "80", tmp_path)
    assert ended.code == 0, ended.stderr
    told = [json.loads((tmp_path / f"true{k}.json").read_text("utf-8")) for k in (0, 1)]
    assert all(one["trained_alike"] for one in told)
    norms = [one["norms"] for one in told]
    begin = 2 + 1 + 4  # warm-up, recorded, timed after that
    steps = range(begin, begin + NORM_STEPS)
    own = [fmean(norms[k][step][0] for k in (0, 1)) for step in steps]
    expected = estimated(own, [norms[0][step][1] for step in steps], 2)
    made = load_run(tmp_path / "run").noise_scale
    assert made is not None
    assert made.steps == NORM_STEPS
    assert made.rank_batches == pytest.approx(expected.rank_batches, rel=1e-5)
    assert "gradient noise scale: " in ended.stdout
