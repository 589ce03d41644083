"""`stepscope run --fabric`: the script's ranks in networks of their own, numbered as torchrun numbers them on such nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabrics import needs_namespaces
from recordings import Started

SCRIPT = """
import json, os, pathlib
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    model(torch.ones(2, 8)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
names = "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "WORLD_SIZE"
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
told = {name: int(os.environ[name]) for name in names} | {"interfaces": sorted(interfaces)}
told["network"] = os.readlink("/proc/self/ns/net")
pathlib.Path(f"rank{dist.get_rank()}.json").write_text(json.dumps(told))
dist.destroy_process_group()
"""


@needs_namespaces
@pytest.mark.slow
def test_two_nodes_of_two_ranks_are_recorded_each_rank_in_its_own_network(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    shape = ("--fabric", "1gbit,400mbit", "--nnodes", "2", "--nproc-per-node", "2")
    done = Started(*shape, "--out", "out", "script.py", cwd=tmp_path).finish()
    assert (done.code, done.leftovers) == (0, [])
    told = [json.loads((tmp_path / f"rank{rank}.json").read_text("utf-8")) for rank in range(4)]
    assert [(one["GROUP_RANK"], one["LOCAL_RANK"]) for one in told] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {(one["LOCAL_WORLD_SIZE"], one["GROUP_WORLD_SIZE"], one["WORLD_SIZE"]) for one in told} == {
        (2, 2, 4)
    }
    assert [one["interfaces"] for one in told] == [["eth0", "lo"]] * 4
    assert len({one["network"] for one in told}) == 4
    assert len([*(tmp_path / "out").glob("rank*.pt.trace.json.gz")]) == 4
