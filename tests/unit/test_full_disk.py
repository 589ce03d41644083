"""A disk without room is one line that names the place: nothing is claimed to be written, and nothing ends in a traceback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.capture.launch import LaunchStatus, told_by
from stepscope.cli.monitoring import conclude_monitored

_MOUNT = (
    "mount -t tmpfs -o size=16k tmpfs full && head -c 16k /dev/zero >full/fill; exec '{python}' -c '{code}'"
)


def on_a_full_disk(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code beside a folder `full` that has no room; skips where no file system may be mounted."""
    (folder / "full").mkdir()
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        pytest.skip("a full disk needs a mount of its own, and so root on Linux")
    command = ["unshare", "-m", "sh", "-c", _MOUNT.format(python=sys.executable, code=code)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_monitor_says_once_what_it_cannot_write_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = on_a_full_disk(
        tmp_path,
        "from pathlib import Path; from stepscope.capture.monitor_log import Entry, MonitorLog;"
        'log = MonitorLog(Path("full/monitored"), None); entry = Entry(step=4, problem="x", ranks=1);'
        "log.open(); log.open(); log.tell(entry); log.tell(entry)",
    )
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "stepscope: nothing is written for TensorBoard: No space left on device",
            "stepscope: step 4: not audited: x",
            "stepscope: cannot write full/monitored/monitor.jsonl: No space left on device",
            "stepscope: step 4: not audited: x",
        ],
    )


def test_a_sweep_names_its_file_and_that_it_goes_on(tmp_path: Path) -> None:
    done = on_a_full_disk(
        tmp_path,
        "from pathlib import Path; from stepscope.errors import InputError; from stepscope.sweep.results import *;"
        'file = ResultsFile(Path("full"));\n'
        "try: file.append(None)\n"
        "except InputError as error: print(error)",
    )
    assert done.stdout == (
        "cannot write full/runs.jsonl: No space left on device; with room there, the same command goes on\n"
    )


@pytest.mark.parametrize("content", [None, b"", b'{"kind": "do'])
def test_an_agent_without_room_for_its_account_is_judged_by_its_exit_code(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "status.json"
    if content is not None:
        file.write_bytes(content)
    assert told_by(file, 0) == LaunchStatus(kind="done")
    assert told_by(file, 1) == LaunchStatus(kind="error", message="it ended with exit code 1")


def test_an_empty_file_of_a_monitor_is_not_told_as_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "monitor.jsonl").touch()
    assert conclude_monitored(LaunchStatus(kind="done"), tmp_path) == 0
    assert capsys.readouterr().out == ""


def test_a_disk_without_room_for_a_single_file_is_one_line_and_the_loop_goes_on(tmp_path: Path) -> None:
    """A limit on the size of files, which the system itself holds: nothing is replaced for the test."""
    code = f"""
import resource, torch, stepscope
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.5)
with stepscope.record({str(tmp_path)!r}, warmup=2, steps=2):
    for _ in range(9):
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print(weight.tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[-3.5, -3.5, -3.5, -3.5]\n"
    ours = [line for line in done.stderr.splitlines() if line.startswith("stepscope: ")]
    assert ours == [f"stepscope: rank 0 cannot write into {tmp_path}: File too large"]
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
