"""Which runs a sweep makes, in which order, and what its file keeps of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from stepscope.cli.sweep_options import change, parse, variables_of
from stepscope.errors import InputError
from stepscope.sweep.plan import Plan, Slot, Stage, pending, round_order, runs_of, stages
from stepscope.sweep.results import MEASURED, RESULTS_FILE, ResultsFile, RunResult

CAPS = ["1", "8", "25", "100"]


def plan(caps: list[str] = CAPS, *, halving: bool = False, warmup: int = 8, seed: int = 0) -> Plan:
    return Plan(
        script="train.py",
        arguments=["--batch-size=8"],
        launcher=["--nproc-per-node=2"],
        knobs={"bucket-cap-mb": caps},
        flags={},
        warmup=warmup,
        steps=3,
        seed=seed,
        halving=halving,
    )


def result(cap: str, number: int, ms: float = 10.0) -> RunResult:
    return RunResult(
        knobs={"bucket-cap-mb": cap},
        round=number,
        status=MEASURED,
        folder=f"runs/{cap}-{number}",
        started="2026-11-30T08:00:00+00:00",
        seconds=12.5,
        step_ms=[ms - 1, ms, ms + 1],
    )


class TestTheOrder:
    def test_a_plain_sweep_is_one_stage_of_complete_rounds(self) -> None:
        assert stages(4, 3, halving=False) == [Stage(4, 3)]
        left, later = pending(plan(), 3, {}, ())
        assert (len(left), later) == (12, 0)
        for number in range(3):
            members = left[4 * number : 4 * number + 4]
            assert {slot.round for slot in members} == {number}
            assert [slot.candidate for slot in members] == round_order(0, number, 4)
            assert sorted(round_order(0, number, 4)) == [0, 1, 2, 3]

    def test_the_seed_decides_the_order_and_rounds_differ(self) -> None:
        assert [round_order(0, number, 6) for number in range(3)] == [
            round_order(0, number, 6) for number in range(3)
        ]
        assert len({tuple(round_order(0, number, 6)) for number in range(5)}) == 5
        assert round_order(0, 2, 6) != round_order(0, 0, 6)
        assert round_order(1, 0, 6) != round_order(0, 0, 6)

    def test_in_each_pair_of_rounds_every_candidate_comes_before_and_after_every_other(self) -> None:
        for candidates, seed, pair in itertools.product((2, 3, 5), range(4), range(3)):
            first = round_order(seed, 2 * pair, candidates)
            assert round_order(seed, 2 * pair + 1, candidates) == first[::-1]

    def test_what_is_measured_is_not_run_again_and_what_failed_is_left(self) -> None:
        times = {Slot(0, 0): 10.0, Slot(0, 2): 11.0}
        left, _ = pending(plan(), 2, times, {1})
        assert sorted(left) == [Slot(0, 3), Slot(1, 0), Slot(1, 2), Slot(1, 3)]


class TestHalving:
    def test_the_better_half_runs_twice_as_often_until_two_are_left_for_all_rounds(self) -> None:
        assert stages(8, 6, halving=True) == [Stage(8, 1), Stage(4, 2), Stage(2, 6)]
        assert runs_of(stages(8, 6, halving=True)) == 8 + 4 + 2 * 4
        assert stages(12, 2, halving=True) == [Stage(12, 1), Stage(6, 2)]
        assert stages(2, 3, halving=True) == [Stage(2, 1), Stage(2, 3)]

    def test_the_slower_half_makes_no_further_run(self) -> None:
        first = {Slot(0, candidate): ms for candidate, ms in enumerate((12.0, 10.0, 11.0, 13.0))}
        left, later = pending(plan(halving=True), 4, first, ())
        assert sorted(left) == [Slot(1, 1), Slot(1, 2), Slot(2, 1), Slot(2, 2), Slot(3, 1), Slot(3, 2)]
        assert later == 0

    def test_runs_of_later_stages_are_counted_ahead(self) -> None:
        left, later = pending(plan(halving=True), 4, {}, ())
        assert (len(left), later) == (4, 6)


class TestTheFile:
    def test_runs_are_there_again_and_one_that_a_kill_cut_short_is_not(self, tmp_path: Path) -> None:
        file = ResultsFile(tmp_path)
        assert file.open(plan()) == []
        file.append(result("1", 0))
        with (tmp_path / RESULTS_FILE).open("ab") as stream:
            stream.write(b'{"knobs":{"bucket-cap-mb":"8"},"rou')
        assert ResultsFile(tmp_path).open(plan()) == [result("1", 0)]
        file.append(result("8", 0))
        assert ResultsFile(tmp_path).open(plan()) == [result("1", 0), result("8", 0)]
        assert result("8", 0).time_ms == 10.0

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            (plan(warmup=9), "a sweep with warmup 8, not 9"),
            (
                plan(["1", "8"]),
                'a sweep with knobs {"bucket-cap-mb":["1","8","25","100"]}, not {"bucket-cap-mb"',
            ),
            (plan(seed=3), "a sweep with seed 0, not 3"),
        ],
    )
    def test_other_flags_are_refused_with_the_way_on(self, tmp_path: Path, other: Plan, said: str) -> None:
        ResultsFile(tmp_path).open(plan())
        with pytest.raises(InputError) as refused:
            ResultsFile(tmp_path).open(other)
        assert said in str(refused.value)
        assert str(refused.value).endswith(
            "repeat its flags to go on with it, name another --out, or pass --force to begin anew"
        )

    def test_a_file_of_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / RESULTS_FILE).write_text(json.dumps({"loss": 1}) + "\n", "utf-8")
        with pytest.raises(InputError, match="is no sweep's file"):
            ResultsFile(tmp_path).open(plan())


class TestTheOptions:
    def test_knobs_go_to_ddp_to_the_scripts_flags_and_to_the_environment(self) -> None:
        args = parse(
            [
                *("--bucket-cap-mb", "1,25.0,script", "--accumulate", "1,2", "--env", "NCCL_MAX_CTAS=4,8"),
                *("--arg", "--dtype=float32,bfloat16", "--flag-for", "accumulate=trainer.accumulate"),
                *("train.py", "--arg", "-5"),
            ],
            "",
        )
        assert args.knobs == {
            "bucket-cap-mb": ["1", "25", "script"],
            "accumulate": ["1", "2"],
            "NCCL_MAX_CTAS": ["4", "8"],
            "--dtype": ["float32", "bfloat16"],
        }
        assert args.training_script_args == ["--arg", "-5"]
        knobs = {name: values[-1] for name, values in args.knobs.items()}
        made = change(knobs, args.flags, variables_of(args))
        assert made == (None, ["trainer.accumulate=2", "--dtype=bfloat16"], {"NCCL_MAX_CTAS": "8"})
        assert change({**knobs, "bucket-cap-mb": "1"}, args.flags, variables_of(args)).bucket_cap_mb == 1.0

    def test_a_flag_of_the_script_for_the_bucket_cap_takes_the_place_of_the_override(self) -> None:
        args = parse(["--bucket-cap-mb=1,8", "--flag-for", "bucket-cap-mb=--cap", "train.py"], "")
        assert change({"bucket-cap-mb": "8"}, args.flags, []) == (None, ["--cap=8"], {})

    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            ([], "nothing to compare; give a knob with its values, such as --bucket-cap-mb 1,8,25,100"),
            (["--bucket-cap-mb", "25"], "one candidate has nothing to be compared with"),
            (["--bucket-cap-mb", "1,x"], "'x' is no bucket cap; give MiB above 0, or `script`"),
            (["--bucket-cap-mb", "0,1"], "'0' is no bucket cap"),
            (["--bucket-cap-mb", "1,1.0"], "bucket-cap-mb has the value 1 twice"),
            (["--accumulate", "1,0"], "'0' is no number of micro-batches"),
            (["--zero", "0,4"], "'4' is no ZeRO stage; there are 0, 1, 2 and 3"),
            (["--env", "NCCL_MAX_CTAS"], "--env 'NCCL_MAX_CTAS' has no values; write --env NAME=VALUE,VALUE"),
            (["--env", "A B=1,2"], "--env 'A B' is no name of a variable"),
            (["--env", "A=1,2", "--env", "A=3"], "A is given twice"),
            (["--arg", "--dtype"], "--arg '--dtype' has no values"),
            (["--bucket-cap-mb=1,2", "--flag-for", "batch=--batch"], "--flag-for 'batch=--batch' is none"),
            (["--bucket-cap-mb=1,2", "--repeat", "0"], "'0' is no whole number from 1 on"),
            (["--bucket-cap-mb=1,2", "--repeat", "501"], "are more than 1000 runs; give fewer"),
            (["--bucket-cap-mb=1,2", "--repeat", "1", "--halving"], "--halving with one round has no later"),
        ],
    )
    def test_what_makes_no_sweep_is_refused_in_a_line(self, argv: list[str], said: str) -> None:
        with pytest.raises(InputError) as refused:
            parse([*argv, "train.py"], "")
        assert said in str(refused.value)

    def test_a_sweep_without_a_script_is_told_so(self) -> None:
        with pytest.raises(InputError, match="name a SCRIPT, -m MODULE or a WORKLOAD"):
            parse(["--bucket-cap-mb", "1,2"], "")
