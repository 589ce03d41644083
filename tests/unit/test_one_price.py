"""A change that both a finding and the recommendation name is worth the same in both."""

from __future__ import annotations

from pathlib import Path

from gloo_job import Host, case_of, ddp, lay_out
from stepscope.audit.causes import bucket_too_large
from stepscope.audit.recommend import recommend

MIB = 262_144
"""Elements of float32; each takes 1 ms on the wire."""


def one_bucket(host: Host) -> None:
    host.forward(2000)
    ddp(host, [MIB] * 12, [(12 * MIB, 11)], node_us=2000)
    host.update(1000)


def test_a_smaller_bucket_cap_has_one_price(tmp_path: Path) -> None:
    steps = case_of(tmp_path, lay_out(one_bucket, steps=3, latency=0, per_element=1000 / MIB))
    (found,), advised = bucket_too_large.detect(steps), recommend(steps)
    assert advised is not None
    assert f"bucket_cap_mb={advised.bucket_cap_mb:g})" in found.fix
    assert (found.cost_ms, found.cost_ms_ci) == (advised.gain_ms, advised.gain_ms_ci)
