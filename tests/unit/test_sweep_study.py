"""The page of the bucket-cap study: what it holds against its targets, from built sweeps."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.sweep_study_chart import pictures
from benchmarks.sweep_study_text import errors, loss_of, page, taken

CAPS = (0.5, 5.0, 25.0)


def cell(
    ranks: int, steps: tuple[float, ...], predicted: tuple[float, ...], cap: float | None
) -> dict[str, Any]:
    rows = [
        {
            "label": f"{size:g} MiB",
            "knobs": {"bucket-cap-mb": f"{size:g}"},
            "bucket_cap_mb": size,
            "buckets": 3,
            "step_ms": step,
            "step_ms_ci": [step - 10, step + 10],
            "exposed_ms": 100.0,
            "floor_ms": 80.0,
            "overlap_backward": 0.5,
            "predicted_step_ms": told,
        }
        for size, step, told in zip(CAPS, steps, predicted, strict=True)
    ]
    return {
        "rate": "1gbit",
        "ranks": ranks,
        "held": True,
        "load_before": 0.1,
        "repeat": 2,
        "rows": rows,
        "recommended_mb": cap,
        "explanation": "5 MiB is the fastest.",
        "seed": 0,
    }


@pytest.fixture
def study() -> dict[str, Any]:
    two = cell(2, (1000, 900, 1100), (1010, 936, 1155), 0.5)
    four = cell(4, (1300, 1200, 1500), (1300, 1200, 1500), None)
    scaled = {
        "rate": "1gbit",
        "cap": "5 MiB",
        "from_ms": 900.0,
        "step_ms": 1200.0,
        "predicted_step_ms": 1320.0,
    }
    return {
        "command": ["python", "-m", "benchmarks.sweep_study"],
        "cpus": 2,
        "share": 0.2,
        "batch_size": 2,
        "cells": [two, four],
        "scaling": [scaled],
    }


def test_errors_are_of_every_cap_and_the_loss_of_the_one_that_is_recommended(study: dict[str, Any]) -> None:
    assert errors(study["cells"]) == pytest.approx([0.01, 0.04, 0.05, 0, 0, 0])
    two, four = study["cells"]
    assert [taken(one)["bucket_cap_mb"] for one in (two, four)] == [0.5, 25.0]
    assert [loss_of(one) for one in (two, four)] == pytest.approx([1 / 9, 0.25])


def test_the_page_says_which_targets_are_kept_and_which_are_missed(study: dict[str, Any]) -> None:
    lines = page(study).splitlines()
    assert "| predicted step, median error | 5 % | 0.5 %, 6 points: kept |" in lines
    assert "| predicted step, worst error | 10 % | 5.0 %, 6 points: kept |" in lines
    assert (
        "| recommended cap over the best one measured, worst | 3 % | 25.0 %, 2 sweeps: **missed** |" in lines
    )
    assert "| four ranks from two, worst error | 15 % | 10.0 %, 1 point: kept |" in lines
    assert "| 1gbit | 5 MiB | 900 | 1200 | 1320 | +10.0 % | 1.33 | 1.47 |" in lines
    assert "| 5 | 3 | 900 | 890 to 910 | 100 | 80 | 50 % |  | 936 | +4.0 % |" in lines
    assert "The prediction recommends 0.5 MiB: 11.1 % over the shortest step measured." in lines


def test_there_is_a_picture_for_each_number_of_ranks(study: dict[str, Any]) -> None:
    pytest.importorskip("altair")
    made = dict(pictures(study))
    assert list(made) == ["step-2-ranks.svg", "step-4-ranks.svg"]
    assert all(text.startswith("<svg") and "bucket cap, MiB" in text for text in made.values())
