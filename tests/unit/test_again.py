"""The next step names the command that recorded the run, with what is to change in it, and nothing that was for once."""

from __future__ import annotations

import pytest

from stepscope.audit.again import record_again, sweep


def run_of(line: str) -> dict[str, object]:
    return {"command": ["stepscope", "run", *line.split()]}


@pytest.mark.parametrize(
    ("line", "recorded", "swept"),
    [
        (
            "--nproc-per-node 2 --steps 6 --stop --out clip train.py --steps 9 --out x",
            "stepscope run --steps 18 --nproc-per-node 2 --stop train.py --steps 9 --out x",
            "stepscope sweep --bucket-cap-mb script,5 --nproc-per-node 2 --steps 6 train.py --steps 9 --out x",
        ),
        (
            "--nproc_per_node=2 --steps=3 --out=a --force --gather --fail-on comm-bound gpt --preset 1m",
            "stepscope run --steps 18 --nproc_per_node=2 --gather gpt --preset 1m",
            "stepscope sweep --bucket-cap-mb script,5 --nproc_per_node=2 --steps=3 gpt --preset 1m",
        ),
        (
            "--standalone --with-stack --monitor 100 -m pkg.train -x",
            "stepscope run --steps 18 --standalone --with-stack -m pkg.train -x",
            "stepscope sweep --bucket-cap-mb script,5 --standalone -m pkg.train -x",
        ),
    ],
)
def test_the_command_is_the_one_that_recorded_the_run(line: str, recorded: str, swept: str) -> None:
    assert record_again(run_of(line), 18) == recorded
    assert sweep(run_of(line), "script,5") == swept


def test_words_are_quoted_for_a_shell_and_a_long_command_leaves_out_the_scripts_arguments() -> None:
    run = {"command": ["stepscope", "run", "my train.py", "--name", "a b"]}
    assert record_again(run, 18) == "stepscope run --steps 18 'my train.py' --name 'a b'"
    run["command"] += ["x" * 200]
    assert record_again(run, 18) == "stepscope run --steps 18 'my train.py' ..."


@pytest.mark.parametrize("command", [None, "stepscope run a.py", ["python", "a.py"], ["stepscope", "run", 3]])
def test_a_run_that_was_started_otherwise_leaves_the_script_to_be_named(command: object) -> None:
    assert record_again({"command": command}, 18) == "stepscope run --steps 18 SCRIPT"
    assert record_again(None) == "stepscope run --nproc-per-node N SCRIPT"
    assert sweep({"command": command}, "script,5") == "stepscope sweep --bucket-cap-mb script,5 SCRIPT"
