"""Which function of the script an event was called from, in recordings with stacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from build_trace import TraceBuilder
from stepscope.trace import host
from stepscope.trace.frames import is_scripts
from stepscope.trace.reader import read

SCRIPT = """
import torch

model = torch.nn.Linear(8, 8)


def log_loss(loss):
    return loss.item()


def step():
    loss = model(torch.ones(4, 8)).sum()
    log_loss(loss)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


with torch.profiler.profile(with_stack=True) as profile:
    step()
profile.export_chrome_trace("trace.json")
"""


@pytest.mark.parametrize(
    ("name", "scripts"),
    [
        ("train.py(42): step", True),
        ("/home/me/code/train.py(42): <module>", True),
        ("code/train.py(42): step", True),
        ("/venv/lib/python3.11/site-packages/lightning/loop.py(7): run", True),
        ("torch/nn/modules/module.py(1780): _wrapped_call_impl", False),
        ("/venv/lib/python3.11/site-packages/torch/utils/_contextlib.py(115): decorate_context", False),
        ("/usr/lib/python3.11/contextlib.py(78): inner", False),
        ("multiprocessing/process.py(108): run", False),
        ("threading.py(1002): _bootstrap", False),
        ("<frozen runpy>(198): _run_module_as_main", False),
        ("<built-in method item of Tensor object at 0x7f0000000000>", False),
        ("nn.Module: Linear_0", False),
        ("/home/me/src/stepscope/capture/hooks.py(12): after_step", False),
    ],
)
def test_what_belongs_to_torch_to_python_or_to_the_recorder_is_not_the_scripts(
    name: str, scripts: bool
) -> None:
    assert is_scripts(name) is scripts


def test_a_real_recording_says_which_function_read_a_value(tmp_path: Path) -> None:
    """torch's own functions are passed over: the norm is read by the function that clips."""
    (tmp_path / "train.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    trace = read(tmp_path / "trace.json")
    assert trace.header.with_stack
    callers = []
    for row in host.select(trace, lambda name: name == "aten::item").tolist():
        events = trace.events
        name = trace.frames.innermost(int(events.thread[row]), int(events.start[row]), int(events.end[row]))
        assert name is not None
        callers.append(trace.names[name])
    assert callers == ["train.py(7): log_loss", "train.py(11): step"]


def test_the_scripts_python_functions_are_kept_apart_from_the_events(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=0)
    builder.span("python_function", "train.py(3): step", 90, 50)
    for others in (
        "torch/nn/modules/module.py(1780): _wrapped_call_impl",
        "threading.py(1002): _bootstrap",
        "/usr/lib/python3.11/contextlib.py(78): inner",
        "/venv/lib/python3.11/site-packages/torch/utils/_contextlib.py(115): decorate_context",
        "/home/me/src/stepscope/capture/hooks.py(12): after_step",
        "<built-in method item of Tensor object at 0x7f0000000000>",
        "nn.Module: Linear_0",
    ):
        builder.span("python_function", others, 95, 40)
    builder.span("python_function", "/venv/lib/python3.11/site-packages/lightning/loop.py(7): run", 96, 30)
    builder.span("cpu_op", "aten::item", 100, 5)
    trace = read(builder.write(tmp_path / "rank0.json"))
    assert [trace.names[name] for name in trace.events.name] == ["aten::item"]
    thread = int(trace.events.thread[0])
    called_in = [trace.frames.innermost(thread, 0, end) for end in (5_000, 35_000, 50_000)]
    assert [name if name is None else trace.names[name] for name in called_in] == [
        "/venv/lib/python3.11/site-packages/lightning/loop.py(7): run",
        "train.py(3): step",
        None,
    ]
    assert (int(trace.frames.start[0]), int(trace.frames.end[0])) == (-10_000, 40_000)
