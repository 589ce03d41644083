"""A device trace with Python stacks, for there is no public one: the frames of a recorded run, put into a real device trace.

The frames are those that torch's profiler records (`with_stack=True`) of the bundled GPT on two CPU ranks. They are spelled
and placed as Kineto does: one run of `python_function` events behind the operators and before what the device did. Their
times are stretched to the trace's first and last step. They stay on a thread of their own, because they do not nest with
the operators of another script.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.grow import text_of

RECORDED_STEPS = 12
"""Whose frames are about four of ten events then."""
_FRAME = re.compile(
    rb'"cat": "python_function",\s*"name": (?P<name>"(?:[^"\\]|\\.)*"),\s*"pid": \d+,\s*"tid": (?P<tid>\d+),\s*'
    rb'"ts": (?P<ts>[\d.]+),\s*"dur": (?P<dur>[\d.]+)\s*,\s*"args": \{(?P<args>[^}]*)\}'
)
_STEP = re.compile(rb'"ProfilerStep#\d+", "pid": (\d+), "tid": \d+,\s*"ts": ([\d.]+), "dur": ([\d.]+)')
_OF_DEVICE = re.compile(rb'"cat": "(?:cuda_runtime|kernel|gpu_memcpy)"')
_EVENT_START = b"\n  {"


def record(folder: Path) -> Path:
    """Record the bundled GPT with its Python stacks; the trace of rank 0. A third of a minute; needs torch."""
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "stepscope",
                "run",
                "--nproc-per-node",
                "2",
                "--out",
                str(folder),
                "--force",
            ),
            *("--with-stack", "--steps", str(RECORDED_STEPS), "--stop", "gpt", "--preset", "3m"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return next(folder.glob("rank0.*.pt.trace.json.gz"))


def put_into(trace: Path, recorded: Path, target: Path) -> int:
    """Write the device trace with the recorded frames in it to target, gzipped; returns how many frames.

    ValueError where the trace has no step or nothing of a device as Kineto spelled them then, or nothing was recorded.
    """
    text = text_of(trace)
    steps, device = _STEP.findall(text), _OF_DEVICE.search(text)
    frames = list(_FRAME.finditer(text_of(recorded)))
    if not steps or device is None or not frames:
        raise ValueError(
            f"{trace}: no steps and device's work to put frames into, or no frames in {recorded}"
        )
    pid, starts = steps[0][0], [_ns(start) for _, start, _ in steps]
    end = max(start + _ns(duration) for start, (_, _, duration) in zip(starts, steps, strict=True))
    place = text.rindex(_EVENT_START, 0, device.start())
    draft = target.with_suffix(".part")
    with gzip.open(draft, "wb", compresslevel=6) as file:
        file.write(text[:place])
        file.writelines(_spelled(frames, pid, min(starts), end))
        file.write(text[place:])
    draft.replace(target)
    return len(frames)


def _spelled(frames: list[re.Match[bytes]], pid: bytes, begin: int, end: int) -> Iterator[bytes]:
    """The frames as events of a process between two times, in ns."""
    times = [(_ns(frame["ts"]), _ns(frame["dur"])) for frame in frames]
    first = min(start for start, _ in times)
    span = max(start + duration for start, duration in times) - first
    for frame, (start, duration) in zip(frames, times, strict=True):
        moved, lasting = begin + (start - first) * (end - begin) // span, duration * (end - begin) // span
        yield (
            b'\n  {\n    "ph": "X", "cat": "python_function", "name": %b, "pid": %b, "tid": %b,\n'
            b'    "ts": %b, "dur": %b,\n    "args": {%b}\n  },'
            % (frame["name"], pid, frame["tid"], _us(moved), _us(lasting), frame["args"])
        )


def _ns(us: bytes) -> int:
    whole, _, rest = us.partition(b".")
    return int(whole) * 1000 + int(rest.ljust(3, b"0")[:3])


def _us(ns: int) -> bytes:
    return b"%d.%03d" % divmod(ns, 1000)
