"""Real HolisticTraceAnalysis and torch-tb-profiler on the real traces: their definitions on our data give their figures.

The standing check on our own numbers: what the reader, the names, the launches and the interval algebra make of a trace is
held against two programs that share no line with it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from stepscope.cli.second_opinion import opinion_of
from stepscope.second_opinion import hta, plugin
from stepscope.second_opinion.result import Figure, Opinion, SecondOpinion
from stepscope.trace.discover import find_local_traces

pytest.importorskip("hta", reason="needs stepscope[second-opinion]")

HTA_OVERLAP = {
    "hta_resnet_ddp_a100": [0.1431],
    "hta_dlrm_a100_legacy": [0.4703],
    "param_dlrm_v100_8ranks": [0.045, 0.0247, 0.0788, 0.0331, 0.0056, 0.0064, 0.0756, 0.0951],
}


@cache
def asked(folder: Path) -> SecondOpinion:
    """Each folder is asked about once."""
    return opinion_of(find_local_traces([str(folder)]))


def figures(made: SecondOpinion, peer: str, name: str) -> list[Figure]:
    return [figure for one in of(made, peer) for figure in one.figures if figure.figure == name]


def of(made: SecondOpinion, peer: str) -> list[Opinion]:
    return [one for one in made.opinions if one.peer == peer]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "given"),
    [
        ("hta_resnet_ddp_a100", 4),
        ("hta_dlrm_a100_legacy", 4),
        ("param_dlrm_v100_8ranks", 4 * 8),
        ("hta_resnet_ddp_world1", 3),
        ("hta_minitoy_mi250_no_comm", 2),
        ("hta_gloo_annotations_only", 2),
    ],
)
def test_every_figure_of_a_peer_comes_out_of_our_data_under_its_definition(
    folder: str, given: int, shared: Path
) -> None:
    figures = [figure for one in asked(shared / "traces" / folder).opinions for figure in one.figures]
    assert [figure for figure in figures if figure.agrees is False] == []
    assert sum(figure.agrees is True for figure in figures) == given


@pytest.mark.slow
def test_htas_overlap_is_what_its_own_program_says_and_ours_says_why_it_differs(shared: Path) -> None:
    for folder, overlaps in HTA_OVERLAP.items():
        said = figures(asked(shared / "traces" / folder), hta.NAME, "overlap")
        assert [figure.theirs for figure in said] == pytest.approx(overlaps)
    (resnet,) = figures(asked(shared / "traces/hta_resnet_ddp_a100"), hta.NAME, "overlap")
    values = [rung.value for rung in resnet.rungs]
    assert values == pytest.approx([0.15647, 0.15609, 0.15609, 0.15609, 0.14763, 0.14763, 0.14305], abs=1e-5)
    assert resnet.rungs[4].definition == "without what the last step launched"


@pytest.mark.slow
def test_where_a_peer_has_no_figure_its_error_is_one_line_and_ours_stands(shared: Path) -> None:
    (gloo,) = of(asked(shared / "traces/hta_gloo_annotations_only"), hta.NAME)
    assert gloo.error is not None and gloo.error.startswith(
        "IndexError: single positional indexer is out-of-bounds"
    )
    assert gloo.remarks == ["10 collectives are none by its names, `gloo:all_reduce` among them"]
    (quiet,) = of(asked(shared / "traces/hta_minitoy_mi250_no_comm"), hta.NAME)
    assert quiet.error == "no overlap: none of the device kernels it reads communicates by its names"


@pytest.mark.slow
def test_the_plugin_takes_the_librarys_kernels_for_compute_and_is_told_of_it(shared: Path) -> None:
    (resnet,) = of(asked(shared / "traces/hta_resnet_ddp_a100"), plugin.NAME)
    assert resnet.remarks[0].startswith("21 kernels of the communication library are compute for it")
    (overlap,) = [figure for figure in resnet.figures if figure.figure == "overlap"]
    assert overlap.theirs == pytest.approx(0.97841, abs=1e-5)
    assert overlap.ours == pytest.approx(0.15647, abs=1e-5)
