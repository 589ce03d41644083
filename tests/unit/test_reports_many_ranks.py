"""Reports of a job with a thousand ranks are no longer than those of one with twenty, and show the rank that matters."""

from __future__ import annotations

import io
import json
import re

import msgspec

import sample_audits
from stepscope.audit.result import Audit
from stepscope_reports import html
from terminal_text import rendered, section


def many_ranks(count: int, late: int) -> Audit:
    audit = sample_audits.comm_bound()
    ranks = [
        msgspec.structs.replace(sample_audits.recorded_rank(number), world_size=count)
        for number in range(count)
    ]
    straggler = {"rank": late, "last_share": 1.0, "collectives": 9, "lateness_ms": 20.0, "total_ms": 180.0}
    return msgspec.structs.replace(audit, ranks=ranks, stragglers=[straggler])


def test_of_many_ranks_those_that_the_others_wait_for_have_a_row() -> None:
    audit = many_ranks(1000, late=700)
    text = rendered(audit)
    assert len(text.splitlines()) < 200
    assert section(text, "Measured")[:2] == [
        "  1,000 of 1,000 ranks, gloo on cpu; 3,000 of 4,000 steps counted",
        "  from runs/demo",
    ]
    for title, rows in (("Measured", 16), ("Steps", 24)):
        numbers = [
            line.split()[0]
            for line in section(text, title)
            if line.split()[1:3] in (["3", "of"], ["all", "3"])
        ]
        assert numbers == [*map(str, range(rows - 1)), "700"]
    assert section(text, "Steps")[1 + 24] == "  and 976 ranks more; audit.json has all"


def test_of_many_hosts_the_clocks_that_are_furthest_off_are_shown() -> None:
    clocks = [
        {"host": f"node{k}", "offset_ms": float(k), "drift_ppm": 0.0, "residual_ms": 0.0, "pairs": 9}
        for k in range(1, 100)
    ]
    text = rendered(msgspec.structs.replace(sample_audits.comm_bound(), clocks=clocks))
    rows = section(text, "Clocks, against the first host's")
    assert [row.split()[0] for row in rows[1:-1]] == [f"node{k}" for k in range(99, 91, -1)]
    assert rows[-1] == "  and 91 hosts more; audit.json has all"


def test_it_says_that_only_some_ranks_were_replayed() -> None:
    audit = many_ranks(100, late=70)
    ranks = [
        rank
        if rank.rank == 70
        else msgspec.structs.replace(
            rank, steps=[msgspec.structs.replace(one, cost_ms=None) for one in rank.steps]
        )
        for rank in audit.ranks
    ]
    assert section(rendered(msgspec.structs.replace(audit, ranks=ranks)), "Measured")[1:3] == [
        "  verdict and findings rest on 1 of 100 ranks: those that the others wait for",
        "  longest, and others evenly spread",
    ]


def test_a_page_shows_the_rank_that_the_others_wait_for_and_not_every_rank() -> None:
    stream = io.StringIO()
    html.render(many_ranks(1000, late=700), stream)
    page = stream.getvalue()
    assert page.count("<tr") < 600
    (data,) = re.findall(r'id="timeline-data">(.*?)</script>', page, re.DOTALL)
    timeline = json.loads(data)
    assert timeline["ranks"] == [*(f"rank {k}" for k in range(63)), "rank 700"]
    assert {view["rank"] for view in timeline["views"]} == set(range(64))
    assert "Ranks that are not here: 936." in page
