"""The terminal report says what the audit holds, in 80 columns, and nothing a terminal could trip over."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pytest
from rich.cells import cell_len

import sample_audits
from stepscope.audit.result import Audit, Step, Warning, Waterfall
from stepscope_reports import terminal
from terminal_text import rendered, section

COMM_BOUND = """\
comm-bound (serialised): communication costs 15.0 % of the step (median; 95 %
interval 14.8 to 15.3 %); 66.7 % of gradient communication hides behind backward

The exposed time is an upper bound of the cost.

Measured
  2 of 2 ranks, gloo on cpu; 6 of 8 steps counted
  from runs/demo
  rank   steps  comm ms  compute ms  exposed ms  file, all of it
     0  3 of 4      760       1,360         240  rank0.17530000....trace.json.gz
     1  3 of 4      760       1,360         240  rank1.17530000....trace.json.gz
  thresholds: cost 10.0 % of the step; communication 10.0 % of the step less its
  cost (here 55.9 %, median; 95 % interval 55.1 to 57.0 %)

The average counted step (means, so that parts add up)
  step                            400.0 ms
  communication                   190.0 ms  47.5 % of the step
    gradients                     180.0 ms
      hidden by backward          120.0 ms  66.7 %
      hidden by other compute       0.0 ms  0.0 %
      exposed                      60.0 ms  33.3 %
      floor                        20.0 ms  these buckets can do no better
      excess                       40.0 ms  a better schedule could win it back
  exposed, all communication       60.0 ms  15.0 % of the step
  cost of communication            60.0 ms  at most; 15.0 % of the step, mean

One step: rank 0, step 5 (400.0 ms)
  ms                 0             100            200            300
                     ┬─────────────┬──────────────┬──────────────┬──────────────
  forward            ██████████████▆
  backward                         ▃█████████████████████████████▃
  optimizer                                                               ▇█████
  bucket 0  25.0 MiB                            ░░░░░░░░░░░░░░
  bucket 1  20.0 MiB                                          ░░░▓▓▓▓▓▓▓▓▓
  other              ░
  █ compute   ░ hidden behind compute   ▓ exposed   · ready, not started

Buckets (median ms from the start of backward)
  bucket      size  params  ready  launched  started   took   hidden  exposed
       0  25.0 MiB      31   79.5      79.8     80.0  100.0  100.0 %      0.0
       1  20.0 MiB      22  178.0     179.0    180.0   80.0   25.0 %     60.0

Steps (ms)
  rank  step   took   comm  grads  overlap  exposed  floor  cost  of step
     0     5  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %
     0     6  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %
     0     7  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %
     1     5  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %
     1     6  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %
     1     7  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %
  not counted: ranks 0, 1, step 4: bucket rebuild

Other communication (ms, in all)
  kind       carries  during   count      size   took  exposed
  broadcast  buffer   forward      6  24.0 KiB  60.00     0.00

Next
  stepscope run --nproc-per-node 2 gpt --bucket-cap-mb 8
"""

NO_COMMUNICATION = """\
no communication: no collective was recorded

Overlap is not applicable.

Measured
  1 file on rocm; no step found
  rank  steps  comm ms  compute ms  exposed ms  file, all of it
   n/a   none    0.000       0.111       0.000  minitoy.json.gz
"""


def every_step(audit: Audit, change: Callable[[Step], Step]) -> Audit:
    ranks = [msgspec.structs.replace(rank, steps=[change(one) for one in rank.steps]) for rank in audit.ranks]
    return msgspec.structs.replace(audit, ranks=ranks)


def with_verdict(audit: Audit, **changes: object) -> Audit:
    return msgspec.structs.replace(audit, verdict=msgspec.structs.replace(audit.verdict, **changes))


def test_a_recorded_run_reads_from_the_verdict_to_the_next_command() -> None:
    assert rendered(sample_audits.comm_bound()) == COMM_BOUND


def test_no_communication_shows_no_percentage() -> None:
    assert rendered(sample_audits.no_communication()) == NO_COMMUNICATION


def test_steps_without_communication_show_their_length_alone() -> None:
    def quiet(step: Step) -> Step:
        return msgspec.structs.replace(
            step, comm_ms=0.0, exposed_ms=0.0, grad=None, waterfall=None, cost_ms=None
        )

    audit = every_step(sample_audits.comm_bound(), quiet)
    silent = msgspec.structs.replace(
        audit, verdict=sample_audits.no_communication().verdict, collectives=[], buckets=[]
    )
    text = rendered(silent)
    assert "%" not in text
    assert section(text, "The average") == [
        "  step                            400.0 ms",
        "  compute                         340.0 ms",
    ]
    assert section(text, "Steps")[:2] == ["  rank  step   took  compute", "     0     5  400.0    340.0"]
    assert section(text, "One step")[-1] == "  █ compute"


SAMPLES = (sample_audits.comm_bound, sample_audits.no_communication, sample_audits.inconclusive)


@pytest.mark.parametrize("make", SAMPLES)
def test_the_samples_obey_the_schema(make: Callable[[], Audit], validated: Callable[[Audit], object]) -> None:
    validated(make())


@pytest.mark.parametrize("make", SAMPLES)
def test_80_columns_are_enough_and_no_line_ends_in_spaces(make: Callable[[], Audit]) -> None:
    lines = rendered(make()).splitlines()
    assert max(cell_len(line) for line in lines) <= 80
    assert [line for line in lines if line != line.rstrip()] == []


def test_names_from_a_trace_are_text_and_cannot_steer_the_terminal() -> None:
    audit = sample_audits.inconclusive()
    hostile = Warning(code="odd-name", message="kernel [red]x[/red]\x1b[2J <script>", source="a\rb.json")
    text = rendered(msgspec.structs.replace(audit, warnings=[hostile]))
    assert section(text, "Warnings") == ["  odd-name: kernel [red]x[/red]\ufffd[2J <script> (a b.json)"]
    assert "\x1b" not in text


def test_inconclusive_with_figures_gives_the_reason_and_the_figures() -> None:
    audit = with_verdict(
        sample_audits.comm_bound(),
        label="inconclusive",
        reason="between comm-bound and comm-sensitive",
        cost_share=0.1,
        cost_share_ci=(0.091, 0.112),
    )
    assert rendered(audit).splitlines()[:3] == [
        "inconclusive (between comm-bound and comm-sensitive): communication costs 10.0 %",
        "of the step (median; 95 % interval 9.1 to 11.2 %); 66.7 % of gradient",
        "communication hides behind backward",
    ]


def test_inconclusive_for_want_of_any_communication_states_no_cost() -> None:
    audit = with_verdict(
        sample_audits.comm_bound(),
        label="inconclusive",
        reason="no categories",
        cost_share=0.0,
        comm_share=0.0,
    )
    assert rendered(audit).splitlines()[:2] == ["inconclusive: no categories", ""]


def test_the_explanation_does_not_repeat_the_label() -> None:
    audit = with_verdict(sample_audits.comm_bound(), explanation="comm-bound: waiting takes long.")
    assert rendered(audit).splitlines()[3] == "Waiting takes long."


def test_one_valid_step_gives_a_headline_without_an_interval() -> None:
    audit = with_verdict(sample_audits.comm_bound(), cost_share_ci=None, overlap_backward=None)
    assert rendered(audit).startswith("comm-bound (serialised): communication costs 15.0 % of the step\n")


def test_host_bound_stands_beside_the_label_and_the_starved_part_is_not_the_networks() -> None:
    audit = with_verdict(sample_audits.comm_bound(), host_bound=True)

    def starved(step: Step) -> Step:
        return msgspec.structs.replace(step, waterfall=Waterfall(host_starved_ms=30.0), cost_ms=30.0)

    text = rendered(every_step(audit, starved))
    assert text.startswith("comm-bound, host-bound (serialised): ")
    assert section(text, "The average")[-2:] == [
        "    host-starved                   30.0 ms  not the network's fault",
        "  cost of communication            30.0 ms  at most; 7.5 % of the step, mean",
    ]


def test_the_waterfall_names_the_exposed_time_and_says_where_waiting_may_be_in_it() -> None:
    def split(**parts: float) -> list[str]:
        def fall(step: Step) -> Step:
            return msgspec.structs.replace(step, waterfall=Waterfall(**parts))

        lines = section(rendered(every_step(sample_audits.comm_bound(), fall)), "The average")
        return lines[lines.index("  exposed, all communication       60.0 ms  15.0 % of the step") + 1 : -1]

    assert split(peer_wait_ms=5.0, device_blocked_ms=0.0, queue_ms=35.0, tail_ms=20.0) == [
        "    waiting for a late rank         5.0 ms  no transfer",
        "    queued                         35.0 ms  behind other transfers",
        "    tail                           20.0 ms  the last bucket's own transfer",
    ]
    assert split(queue_ms=40.0, tail_ms=20.0) == [
        "    queued                         40.0 ms  behind other transfers, or waiting",
        "    tail                           20.0 ms  the last bucket's own transfer, or waiting",
    ]


def test_the_transfers_own_overlap_stands_beside_the_whole() -> None:
    audit = with_verdict(sample_audits.comm_bound(), overlap_backward_wire=0.755)
    line = "      hidden by backward          120.0 ms  66.7 %; 75.5 % of the transfer alone"
    assert section(rendered(audit), "The average")[3] == line


def test_stragglers_are_those_that_made_others_wait() -> None:
    late = [
        {"rank": 1, "last_share": 0.75, "collectives": 8, "lateness_ms": 2.5, "total_ms": 30.0},
        {"rank": 0, "last_share": 0.25, "collectives": 8, "lateness_ms": 0.0, "total_ms": 0.0},
    ]
    text = rendered(msgspec.structs.replace(sample_audits.comm_bound(), stragglers=late))
    assert section(text, "Whom the others wait for") == [
        "  rank  last at, of collectives  by (median)  the others waited",
        "     1                   6 of 8         2.50              30.00",
        "  waited: all waiting of the other ranks in all recorded steps together, hidden",
        '  or not; of the average step, "waiting for a late rank" has what was exposed',
    ]


def test_clocks_of_several_hosts_are_shown_with_what_the_fit_leaves() -> None:
    clocks = [{"host": "node1", "offset_ms": -12.5, "drift_ppm": 3.21, "residual_ms": 0.04, "pairs": 120}]
    text = rendered(msgspec.structs.replace(sample_audits.comm_bound(), clocks=clocks))
    assert section(text, "Clocks") == [
        "  host   offset ms  drift ppm  residual ms  collectives",
        "  node1    -12.500        3.2        0.040          120",
    ]


def test_warnings_that_several_files_share_are_one_line() -> None:
    audit = sample_audits.no_communication()
    shared = [
        Warning(code="no-rank", message="the file names no rank", source=f"{name}.json") for name in "abc"
    ]
    text = rendered(msgspec.structs.replace(audit, warnings=shared))
    assert section(text, "Warnings") == ["  no-rank: the file names no rank (a.json and 2 more files)"]


def test_a_recorded_run_says_what_ran_and_what_recording_cost() -> None:
    run = {
        "schema": "stepscope.run/1",
        "script": "train.py",
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "profiler_cost": {"ratio": 1.0412, "ratio_ci": [1.02, 1.1], "recorded_ms": 410.0},
    }
    text = rendered(msgspec.structs.replace(sample_audits.comm_bound(), run=run))
    assert section(text, "Measured")[1:4] == [
        "  train.py, torch 2.13.0",
        "  a recorded step took 1.04 times as long as an unrecorded one (95 % interval",
        "  1.02 to 1.10)",
    ]


@pytest.mark.parametrize("ratio", [0.78, 1.2])
def test_recording_that_the_steps_do_not_tell_from_none_is_lost_in_noise(ratio: float) -> None:
    cost = {"ratio": ratio, "ratio_ci": [0.6, 1.4]}
    run = {"schema": "stepscope.run/1", "profiler_cost": cost}
    text = rendered(msgspec.structs.replace(sample_audits.comm_bound(), run=run))
    assert section(text, "Measured")[1:3] == [
        f"  what recording cost is lost in noise: a recorded step took {ratio:.2f} times as long",
        "  (95 % interval 0.60 to 1.40)",
    ]


def test_a_run_file_of_another_schema_is_passed_over() -> None:
    audit = msgspec.structs.replace(sample_audits.comm_bound(), run={"schema": "mine/7", "script": 5})
    assert rendered(audit) == COMM_BOUND


def test_findings_show_evidence_and_fix() -> None:
    audit = msgspec.structs.replace(sample_audits.comm_bound(), findings=[sample_audits.finding()])
    assert section(rendered(audit), "Finding: bucket-too-large (high, 40.00 ms a step)") == [
        "  95 % interval of that: 38.50 ms to 41.25 ms",
        "  the last bucket holds 20.0 MiB and starts when backward has 20 ms left",
        "  fix: lower bucket_cap_mb to 8",
    ]


def test_many_ranks_and_steps_become_a_row_a_rank() -> None:
    audit = sample_audits.comm_bound()
    ranks = [sample_audits.recorded_rank(number) for number in range(20)]
    text = rendered(msgspec.structs.replace(audit, ranks=ranks))
    rows = section(text, "Steps")
    assert rows[1] == "     0  all 3  400.0  190.0  180.0   66.7 %     60.0   20.0  60.0   15.0 %"
    assert len(rows) == 1 + 20 + 2  # the header, and the steps left out over two lines
    assert section(text, "Measured")[-3] == "  and 4 files more; audit.json has all"


def test_files_of_several_folders_are_named_in_full() -> None:
    audit = sample_audits.comm_bound()
    first, second = audit.ranks
    moved = msgspec.structs.replace(second, source="elsewhere/rank1.json")
    text = rendered(msgspec.structs.replace(audit, ranks=[first, moved]))
    assert [line.split()[-1] for line in section(text, "Measured")[2:4]] == [
        "runs/demo/rank....trace.json.gz",
        "elsewhere/rank1.json",
    ]


def test_a_step_without_gradients_shows_no_gradient_figures() -> None:
    audit = sample_audits.comm_bound()

    def bare(step: Step) -> Step:
        return msgspec.structs.replace(step, grad=None)

    text = rendered(msgspec.structs.replace(every_step(audit, bare), buckets=[]))
    assert section(text, "The average") == [
        "  step                            400.0 ms",
        "  communication                   190.0 ms  47.5 % of the step",
        "  exposed, all communication       60.0 ms  15.0 % of the step",
        "  cost of communication            60.0 ms  at most; 15.0 % of the step, mean",
    ]
    assert section(text, "Steps")[1].split() == [
        "0",
        "5",
        "400.0",
        "190.0",
        "n/a",
        "n/a",
        "60.0",
        "n/a",
        "60.0",
        "15.0",
        "%",
    ]


def test_a_stream_that_knows_only_ascii_gets_a_drawing_in_ascii() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii", write_through=True)
    terminal.render(sample_audits.comm_bound(), stream)
    picture = section(buffer.getvalue().decode("ascii"), "One step")
    assert picture[-4:-1] == [
        "  bucket 0  25.0 MiB                            --------------",
        "  bucket 1  20.0 MiB                                          ---XXXXXXXXX",
        "  other              -",
    ]


def test_every_part_of_the_waterfall_fits_80_columns() -> None:
    made = sample_audits.comm_bound()
    parts = Waterfall(**dict.fromkeys(Waterfall.__struct_fields__, 1234.5))
    ranks = [
        msgspec.structs.replace(
            rank, steps=[msgspec.structs.replace(step, waterfall=parts) for step in rank.steps]
        )
        for rank in made.ranks
    ]
    lines = rendered(msgspec.structs.replace(made, ranks=ranks)).splitlines()
    assert sum("1,234 ms" in line for line in lines) == len(Waterfall.__struct_fields__)
    assert max(cell_len(line) for line in lines) <= 80


def test_it_says_when_only_some_of_the_counted_steps_were_replayed() -> None:
    audit = sample_audits.comm_bound()
    ranks = [
        msgspec.structs.replace(
            rank,
            steps=[
                msgspec.structs.replace(one, cost_ms=None) if one.step == 6 else one for one in rank.steps
            ],
        )
        for rank in audit.ranks
    ]
    text = rendered(msgspec.structs.replace(audit, ranks=ranks))
    assert "  verdict and findings rest on 2 of 3 counted steps, evenly spread" in section(text, "Measured")
    assert any("cost of communication" in line and "60.0 ms" in line for line in section(text, "The average"))
    assert "rest on" not in rendered(audit)
