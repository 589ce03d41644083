"""`stepscope run` on two hosts: their ranks find one another by torchrun's rendezvous, and are audited together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabrics import held_by, needs_namespaces, wait_until_gone
from hosts import NAMES, two_hosts
from recordings import SCRIPTS

pytestmark = [needs_namespaces, pytest.mark.slow]

RECORDED = ("--nnodes", "2", "--nproc-per-node", "1", "--warmup", "2", "--steps", "2")
SCRIPT = ("ddp.py", "--steps", "6", "--width", "64")
STATIC = ("--master-addr", "node0", "--master-port", "29500")
ELASTIC = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "node0:29500", "--rdzv-id", "job")


def recorded(folder: Path, *options: tuple[str | Path, ...]) -> list[tuple[int, str]]:
    """Run the script with each node's options: exit codes and what was said on standard error."""
    before = held_by(os.getpid())
    with two_hosts(folder) as hosts:
        made = held_by(os.getpid()) - before
        nodes = [
            host.start("run", *RECORDED, *own, *SCRIPT, cwd=SCRIPTS)
            for host, own in zip(hosts, options, strict=True)
        ]
        try:
            said = [node.communicate(timeout=200)[1] for node in nodes]
        finally:
            for node in nodes:
                node.terminate()
    assert wait_until_gone(made) == set()
    return [(node.returncode, text) for node, text in zip(nodes, said, strict=True)]


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def test_nodes_that_share_a_run_directory_make_one_audit_in_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    node0, node1 = recorded(
        tmp_path, *((*STATIC, "--node-rank", number, "--out", out) for number in ("0", "1"))
    )
    assert (node0[0], node1[0]) == (0, 0), (node0, node1)
    assert f"stepscope: the node of rank 0 writes the results into {out}" in node1[1]
    run, audit = read(out / "run.json"), read(out / "audit.json")
    assert run["hosts"] == list(NAMES)
    assert [(rank["rank"], rank["host"], rank["status"]) for rank in run["ranks"]] == [
        (0, "node0", "ended"),
        (1, "node1", "ended"),
    ]
    assert [rank["rank"] for rank in audit["ranks"]] == [0, 1]
    assert audit["warnings"] == []
    assert list(out.glob("rank*.meta.json")) == []


def test_what_nodes_kept_on_storage_of_their_own_is_audited_together(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in NAMES]
    node0, node1 = recorded(tmp_path, *((*ELASTIC, "--out", folder) for folder in folders))
    assert (node0[0], node1[0]) == (0, 0), (node0, node1)
    command = [sys.executable, "-m", "stepscope", "audit", *map(str, folders), "--json", "-"]
    audit = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert sorted(audit["run"]["hosts"]) == list(NAMES)
    assert [rank["rank"] for rank in audit["run"]["ranks"]] == [0, 1]
    assert [rank["rank"] for rank in audit["ranks"]] == [0, 1]
    assert audit["warnings"] == []
    gradients = [one for one in audit["collectives"] if one["gradient"]]
    assert [one["rank"] for one in gradients] == [0, 0, 1, 1]
    assert all("wait_ms" in one for one in gradients)  # paired, which takes both ranks' traces
