"""The programs that are measured, each in a process of its own: `python contestants.py NAME TRACE`.

A script of its own without imports of ours at the top, because peers may live in another environment. Each prints one
line of JSON: its peak memory in bytes, that of the processes it started included, what it found, as a sign of its work, and
the version of the package it is of.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from importlib import import_module, metadata
from pathlib import Path


def floor(trace: str) -> str:
    """Inflate and look at every byte once, decode nothing: what no reader of the format can beat on one thread."""
    from zlib_ng import zlib_ng

    size = events = 0
    with Path(trace).open("rb") as file:
        inflate = zlib_ng.decompressobj(31).decompress if file.peek(2)[:2] == b"\x1f\x8b" else bytes
        while block := file.read(256 << 10):
            text = inflate(block)
            size += len(text)
            events += text.count(b'"ph"')
    return f"{size} bytes, {events} events"


def read(trace: str) -> str:
    """stepscope: the trace as columns."""
    from stepscope.trace.reader import read

    found = read(trace)
    return f"{len(found.events)} events of {len(found.names)} names"


def overlap(trace: str) -> str:
    """stepscope: load, and the overlap of communication with compute in every step: what the peers do and no more."""
    from stepscope.audit.basis import prepare
    from stepscope.audit.overlap import comm_union, measure
    from stepscope.ranks.pairing import pair
    from stepscope.trace.classify import classify
    from stepscope.trace.reader import read
    from stepscope.trace.recording import Phase

    recordings = [classify(read(trace))]
    (basis,) = prepare(recordings, pair(recordings))
    unions = basis.unions
    steps = [
        measure(comm_union(ops), unions.phase(step, Phase.BACKWARD), unions.everything)
        for step, ops in basis.ops_of.items()
    ]
    return f"comm {sum(o.comm for o in steps) / 1e6:.3f} ms, exposed {sum(o.exposed for o in steps) / 1e6:.3f} ms"


def audit(trace: str) -> str:
    """stepscope: everything, from the file to the verdict."""
    from stepscope.cli.audit import audit_paths

    totals = audit_paths([trace]).ranks[0].totals
    return f"comm {totals.comm_ms:.3f} ms, hidden by compute {totals.hidden_ms or 0:.3f} ms"


def hta(trace: str) -> str:
    """HolisticTraceAnalysis: load, and the overlap of communication with computation."""
    import logging

    logging.disable(logging.WARNING)
    analysis = import_module("hta.trace_analysis").TraceAnalysis(
        trace_files={0: trace}, trace_dir=str(Path(trace).parent)
    )
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    return f"overlap {float(overlap['comp_comm_overlap_pctg'].iloc[0]):.2f} %"


def tb_profiler(trace: str) -> str:
    """TensorBoard's plugin: its parse of one trace, up to the figures of its overview and its distributed view."""
    import logging

    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        data = import_module("torch_tb_profiler.profiler.data").RunProfileData
        steps = data.parse("worker", "1", trace, scratch).comm_overlap_costs
    communication = sum(step.communication for step in steps)
    overlap = sum(step.overlap for step in steps) / communication if communication else 0
    return f"overlap {100 * overlap:.2f} %"


def tracelens(trace: str) -> str:
    """AMD's TraceLens, from a checkout on the import path: load, and its breakdown of the device's timeline."""
    import_module("orjson")  # which it names as a need of its own, but reads more slowly without
    peer = import_module("TraceLens")
    events = peer.DataLoader.load_data(trace)["traceEvents"]
    for number, event in enumerate(events):
        event["UID"] = number  # as its tree numbers them, for the breakdown of 2026 asks for it
    breakdown = peer.GPUEventAnalyser(events).get_breakdown_df().set_index("type")["time ms"]
    return f"exposed communication {float(breakdown['exposed_comm_time']):.3f} ms"


CONTESTANTS = {
    function.__name__: function for function in (floor, read, overlap, audit, hta, tb_profiler, tracelens)
}
DISTRIBUTIONS = {"hta": "HolisticTraceAnalysis", "tb_profiler": "torch-tb-profiler"}


def peak_bytes() -> int:
    """Peak resident size of this process plus that of the largest it started: an upper bound of what both held."""
    unit = 1 if sys.platform == "darwin" else 1024
    own, children = (
        unit * resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    status = Path("/proc/self/status")
    # ru_maxrss starts at what the process that started this one held (getrusage(2): kept by execve)
    if status.exists():
        lines = status.read_text().splitlines()
        own = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return own + children


def main(name: str, trace: str) -> None:
    """Run one of them and say what it took."""
    found = CONTESTANTS[name](trace)
    peak = peak_bytes()
    version = metadata.version(DISTRIBUTIONS[name]) if name in DISTRIBUTIONS else ""
    print(json.dumps({"peak_bytes": peak, "found": found, "version": version}))


if __name__ == "__main__":
    main(*sys.argv[1:])
