"""The traces that are measured: grown ones keep the real one's spelling, and Python stacks get a device trace's place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.grow import grow, text_of
from benchmarks.sources import measured
from benchmarks.stacks import put_into

DEVICE = b"""{
  "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 7, "tid": 7,
    "ts": 1000.500, "dur": 100.000,
    "args": {
      "External id": 9, "Ev Idx": 0
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 20,
    "ts": 1010.000, "dur": 5.000,
    "args": {
      "External id": 9, "correlation": 11, "Python id": 3, "Python parent id": null
    }
  },
  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": 1200.000
  }
  ],
  "traceName": "of one rank"
}
"""
RECORDED = b"""{"traceEvents": [
  {
    "ph": "X",
    "cat": "python_function",
    "name": "train.py(3): \\"step\\"",
    "pid": 50,
    "tid": 51,
    "ts": 10.000,
    "dur": 400.000
    ,
    "args": {
      "Python parent id": null, "Python id": 1, "Ev Idx": 8
    }
  },
  {
    "ph": "X",
    "cat": "python_function",
    "name": "<built-in function len>",
    "pid": 50,
    "tid": 51,
    "ts": 110.004,
    "dur": 0.400
    ,
    "args": {
      "Python parent id": 1, "Python id": 2, "Ev Idx": 9
    }
  }
]}
"""


def events_of(trace: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text_of(trace))["traceEvents"]
    return found


def test_each_copy_of_a_grown_trace_is_later_and_has_ids_of_its_own(tmp_path: Path) -> None:
    source, grown = tmp_path / "real.json", tmp_path / "grown.json.gz"
    source.write_bytes(DEVICE)
    size = grow(source, grown, 2 * len(DEVICE) - 200)
    events = events_of(grown)
    assert size == len(text_of(grown))
    assert [event["name"] for event in events] == [
        *("ProfilerStep#4", "gemm", "Record Window End"),
        *("ProfilerStep#5", "gemm", "Record Window End"),
    ]
    assert [event["ts"] for event in events[3:]] == [1_001_200.5, 1_001_210.0, 1_001_400.0]
    assert events[4]["args"] == {
        "External id": 9 + 12,
        "correlation": 11 + 12,
        "Python id": 3 + 12,
        "Python parent id": None,
    }


def test_frames_stand_before_the_device_s_work_and_span_its_steps(tmp_path: Path) -> None:
    device, recorded, target = tmp_path / "real.json", tmp_path / "recorded.json", tmp_path / "both.json.gz"
    device.write_bytes(DEVICE)
    recorded.write_bytes(RECORDED)
    assert put_into(device, recorded, target) == 2
    step, outer, inner, kernel, end = events_of(target)
    assert [step, kernel, end] == json.loads(DEVICE)["traceEvents"]
    assert outer == {
        "ph": "X",
        "cat": "python_function",
        "name": 'train.py(3): "step"',
        "pid": 7,
        "tid": 51,
        "ts": 1000.5,
        "dur": 100.0,
        "args": {"Python parent id": None, "Python id": 1, "Ev Idx": 8},
    }
    assert (inner["name"], inner["ts"], inner["dur"]) == ("<built-in function len>", 1025.501, 0.1)


def test_a_trace_is_named_by_what_it_is(tmp_path: Path) -> None:
    source = tmp_path / "real.pt.trace.json.gz"
    source.write_bytes(gzip.compress(DEVICE))
    as_it_is, grown = measured(source, 0, tmp_path), measured(source, 1, tmp_path)
    assert (as_it_is.name, as_it_is.text_bytes) == ("real, no Python stacks, as it is", len(DEVICE))
    assert as_it_is.path == source
    assert grown.name == "real, no Python stacks, grown"
    assert grown.text_bytes == len(text_of(grown.path)) >= 1_000_000
    before = grown.path.stat().st_mtime_ns
    assert measured(source, 1, tmp_path).path.stat().st_mtime_ns == before, "it is made once"
