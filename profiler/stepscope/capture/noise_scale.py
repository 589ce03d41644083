"""The gradient noise scale from the ranks' norms (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018).

With b the batch of a rank's step and n ranks, E|own|^2 = |G|^2 + tr(S)/b and E|reduced|^2 = |G|^2 + tr(S)/(nb): two equations for
|G|^2 and tr(S), without bias each (their appendix A.1). Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.capture.metadata import NoiseScale, RankMetadata

_RESAMPLES = 2_000
_SEED = 20_26
_FEWEST = 10
"""Steps: an interval that is drawn from fewer holds the truth far less often than it says."""


def noise_scale(ranks: Sequence[RankMetadata]) -> NoiseScale | None:
    """Of a run that was asked for it; with the reason where it can't be told. None where nobody asked."""
    asked = [rank for rank in ranks if rank.gradient_norms or rank.gradient_norms_problem]
    if not asked:
        return None
    problem = next((rank.gradient_norms_problem for rank in asked if not rank.gradient_norms), None)
    if problem is None and len(asked) < 2:
        problem = "one rank's gradient is the reduced one; two ranks or more are needed"
    if problem is not None:
        return NoiseScale(steps=0, problem=problem)
    count = min(len(rank.gradient_norms) for rank in asked)
    norms = np.array([rank.gradient_norms[:count] for rank in asked], dtype=np.float64)
    own, reduced = norms[..., 0].mean(axis=0), norms[..., 1].mean(axis=0)
    finite = np.isfinite(own) & np.isfinite(reduced)
    return estimated(own[finite].tolist(), reduced[finite].tolist(), len(asked))


def estimated(own: Sequence[float], reduced: Sequence[float], ranks: int) -> NoiseScale:
    """From the squared norms of each step: the ranks' own in the mean, and the reduced gradient's."""
    small, large = np.asarray(own), np.asarray(reduced)
    signal = (ranks * large - small) / (ranks - 1)
    noise = (small - large) / (1 - 1 / ranks)
    if len(signal) < _FEWEST or signal.mean() <= 0:
        few = f"{len(signal)} steps do not tell the gradient from its noise; let the script make more after the recorded ones"
        return NoiseScale(steps=len(signal), problem=few)
    picks = np.random.default_rng(_SEED).integers(0, len(signal), size=(_RESAMPLES, len(signal)))
    with np.errstate(divide="ignore"):
        means = signal[picks].mean(axis=1)
        ratios = np.where(means > 0, noise[picks].mean(axis=1) / means, np.inf)
    low, high = np.quantile(ratios, (0.025, 0.975), method="nearest")
    return NoiseScale(
        steps=len(signal),
        rank_batches=max(0.0, float(noise.mean() / signal.mean())),
        rank_batches_low=max(0.0, float(low)),
        rank_batches_high=float(high) if np.isfinite(high) else None,
    )
