"""A fix names what can be set in the framework that reduces the gradients: no knob of DDP under FSDP."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from device_cases import case_of, simulated
from stepscope.audit import causes
from stepscope.audit.causes import find_causes
from stepscope.trace.classify import classify
from stepscope.trace.reader import read
from stepscope_workloads.simulate import Fabric, Job, Simulation, parse, uniform
from stepscope_workloads.simulate.job import US

KNOBS = re.compile(
    r"DistributedDataParallel|bucket_cap_mb|no_sync|ddp_comm_hooks|communication hook|broadcast_buffers|"
    r"overlap_with_ddp|static_graph|find_unused_parameters=|optimize_ddp"
)
UNDER_DDP_ALONE = {
    "find_unused_parameters": "DDP's search",
    "forward_collectives": "buffers are DDP's to broadcast",
    "host_time": "it names DDP's spans to leave them out of what it says",
    "reduced_outside_backward": "a reduction by hand beside FSDP's is taken for no gradient",
    "unused": "DDP's search again",
    "zero1_parameter_broadcast": "ZeroRedundancyOptimizer goes with DDP",
}
MODULES = sorted(Path(causes.__file__).parent.glob("*.py"))


def strings(tree: ast.AST) -> str:
    """What a piece of code may say, its docstrings aside."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in told)
    return " ".join(n.value for n in constants if isinstance(n.value, str))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_what_names_a_knob_of_ddp_has_other_words_for_fsdp(module: Path) -> None:
    tree = ast.parse(module.read_text("utf-8"))
    instead = [one for one in ast.walk(tree) if isinstance(one, ast.keyword) and one.arg == "fix_with"]
    other = " ".join(strings(one) for one in instead)
    if KNOBS.search(strings(tree).replace(other, "")) and module.stem not in UNDER_DDP_ALONE:
        assert any("FSDP" in ast.unparse(one) for one in instead)
    assert KNOBS.search(other.replace("FSDP1: model.no_sync()", "")) is None


def test_the_fixes_of_an_fsdp_job_are_fsdps(tmp_path: Path) -> None:
    model = uniform(layers=4, kernel=100 * US, backward=200 * US, parameters=4_000_000)
    cause, slow = parse("collective-on-compute-stream"), Fabric(gb_per_s=10)
    job = Job(sharding="fsdp", steps=2, causes=(cause,), fabric=slow, model=model)
    fixes = {one.cause: one.fix for one in find_causes(simulated(Simulation(job), tmp_path))[0]}
    assert "FSDP's own stream" in fixes["collective-on-compute-stream"]
    assert KNOBS.search(" ".join(fixes.values())) is None


def test_recorded_fsdp_on_a_cpu_is_told_of_units_and_not_of_hooks() -> None:
    traces = Path(__file__).parents[1] / "data" / "traces"
    case = case_of([classify(read(traces / f"fsdp2_rank{rank}.pt.trace.json.gz")) for rank in (0, 1)])
    (found,) = find_causes(case)[0]
    assert (found.cause, found.fix.split(" (")[0]) == ("wait-edge-in-backward", "fewer and larger units")
