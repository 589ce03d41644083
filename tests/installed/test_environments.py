"""The wheel in environments that hold no more than it asks for, away from the sources."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from packaged import REPOSITORY, Built, Environment, interpreter
from stepscope import __version__

pytestmark = pytest.mark.slow

TRACES = REPOSITORY / "tests" / "data" / "traces"
DDP = tuple(str(TRACES / f"ddp_rank{rank}.pt.trace.json.gz") for rank in (0, 1))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
VERSIONS = [one.rpartition(" :: ")[2] for one in PROJECT["classifiers"] if one.count("::") == 2]
FOR_DEVELOPERS = {"dev", "docs", "frameworks"}


def test_the_versions_that_the_project_names_begin_with_the_oldest_that_it_takes() -> None:
    assert f">={VERSIONS[0]}" == PROJECT["requires-python"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_base_installation_audits_without_torch_just_as_this_one_does(
    version: str, built: Built, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"needs Python {version}, on PATH or from pyenv")
    base = Environment.made(tmp_path / "environment", python)
    base.install(built.wheel)
    torch = base.run("python", "-c", "import torch", cwd=tmp_path)
    assert torch.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"
    command = tmp_path / "stepscope"
    command.symlink_to(base.folder / "bin" / "stepscope")  # as pipx puts it on PATH
    there, here = (
        json.loads(
            subprocess.run([one, "audit", *DDP, "--json", "-"], capture_output=True, check=True).stdout
        )
        for one in (command, Path(sys.executable).with_name("stepscope"))
    )
    assert there == here
    assert there["stepscope"] == __version__
    assert base.run("stepscope", "--version", cwd=tmp_path).stdout == f"stepscope {__version__}\n"


@pytest.fixture(scope="module")
def base(environment: Callable[[str], Environment]) -> Environment:
    return environment("")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("run gpt", "record"),
        ("calibrate", "record"),
        ("sweep --bucket-cap-mb 1,2 gpt", "record"),
        ("audit RUN -o page.html", "html"),
        ("audit RUN -o picture.svg", "charts"),
        ("audit RUN -o picture.png", "charts"),
        ("open RUN", "html"),
        ("open --tensorboard RUN", "tensorboard"),
        ("second-opinion RUN", "second-opinion"),
        ("audit RUN --engine dask://localhost:8786", "dask"),
        ("audit s3://bucket/run", "remote"),
    ],
)
def test_a_command_that_needs_more_says_what_to_install_in_one_line(
    base: Environment, tmp_path: Path, command: str, extra: str
) -> None:
    (tmp_path / "RUN").mkdir()
    for trace in DDP:
        shutil.copy(trace, tmp_path / "RUN")
    done = base.run("stepscope", *command.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"pip install 'stepscope[{extra}]'" in done.stderr


def test_recording_from_inside_a_script_says_so_too(base: Environment, tmp_path: Path) -> None:
    done = base.run("python", "-c", "import stepscope; stepscope.record('run')", cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: stepscope.record needs torch: pip install 'stepscope[record]'"
    )


ENOUGH_FOR = {
    "html": ("stepscope", "audit", *DDP, "-o", "page.html"),
    "charts": ("stepscope", "audit", *DDP, "-o", "picture.png"),
    "tensorboard": ("python", "-c", "import tensorboard.program, torch_tb_profiler.plugin"),
    "second-opinion": ("stepscope", "second-opinion", *DDP),
    "dask": ("python", "-c", "import distributed"),
    "remote": ("python", "-c", "import fsspec"),
}
TRIED_WITH_A_PLUGIN = "record"


def test_each_extra_for_users_is_tried() -> None:
    tried = {*ENOUGH_FOR, TRIED_WITH_A_PLUGIN, "all"}
    assert set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS == tried


@pytest.mark.parametrize("extra", ENOUGH_FOR)
def test_an_extra_brings_all_that_its_command_needs(
    environment: Callable[[str], Environment], tmp_path: Path, extra: str
) -> None:
    program, *arguments = ENOUGH_FOR[extra]
    done = environment(f"[{extra}]").run(program, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
