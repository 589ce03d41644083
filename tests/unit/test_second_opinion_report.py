"""What a second opinion says first: which peer gave nothing and why, and whether the others' figures come out of our data."""

from __future__ import annotations

import io

from stepscope.second_opinion.result import Figure, Opinion, Peer, Rung, SecondOpinion
from stepscope_reports import second_opinion as report

CRASH = "IndexError: out-of-bounds; it reads kernels of a device, and a CPU run has none"


def figure(theirs: float | None, by_us: float) -> Figure:
    return Figure(
        figure="overlap",
        unit="share",
        ours=0.5,
        theirs=theirs,
        theirs_by_us=by_us,
        rungs=[
            Rung(
                definition="stepscope: gradients beside backward, counted steps of all the ranks there are",
                value=0.5,
            ),
            Rung(definition="peer: its own", value=by_us),
        ],
        unexplained=None if theirs is None else theirs - by_us,
        tolerance=1e-4,
        agrees=None if theirs is None else abs(theirs - by_us) <= 1e-4,
    )


def opinions(peer: str, *answers: tuple[float | None, float, str | None]) -> list[Opinion]:
    return [
        Opinion(peer=peer, source=f"rank{rank}.json", rank=rank, error=error, figures=[figure(theirs, by_us)])
        for rank, (theirs, by_us, error) in enumerate(answers)
    ]


def made(*given: Opinion) -> SecondOpinion:
    peers = [
        Peer(name="HolisticTraceAnalysis", version="0.5.0"),
        Peer(name="torch-tb-profiler", version="0.4.3"),
    ]
    return SecondOpinion(stepscope="0", peers=peers, opinions=list(given))


def test_a_peer_that_fails_is_named_first_with_its_reason_and_is_no_disagreement() -> None:
    asked = made(
        *opinions("HolisticTraceAnalysis", (None, 0.0, CRASH), (None, 0.0, CRASH)),
        *opinions("torch-tb-profiler", (0.4, 0.4, None), (0.6, 0.6, None)),
    )
    assert report.headline(asked) == (
        f"HolisticTraceAnalysis 0.5.0 gives no overlap for these files, which is no disagreement: {CRASH}. "
        "torch-tb-profiler 0.4.3: 2 figures of its own, and our data under its definitions gives every one"
    )


def test_a_peer_that_fails_on_some_files_is_judged_by_the_others() -> None:
    asked = made(*opinions("HolisticTraceAnalysis", (None, 0.0, CRASH), (0.4, 0.5, None)))
    assert report.headline(asked) == (
        f"HolisticTraceAnalysis 0.5.0 gives no overlap for 1 of 2 files, which is no disagreement: {CRASH}. "
        "HolisticTraceAnalysis 0.5.0: 1 figure of its own, of which our data under its definitions does not give 1"
    )


def test_long_definitions_go_on_in_the_next_line() -> None:
    stream = io.StringIO()
    report.render(made(*opinions("torch-tb-profiler", (0.4, 0.4, None), (0.6, 0.6, None))), stream)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    start = next(place for place, line in enumerate(lines) if line.startswith("  stepscope: gradients"))
    assert lines[start].split()[-2:] == ["50.00", "%"]
    assert lines[start + 1] == "    counted steps of all the ranks there are"
