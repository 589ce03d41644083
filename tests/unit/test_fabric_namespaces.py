"""Emulated fabrics on this machine's kernel: what is set up, that nothing else is touched, that nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from fabrics import held_by, needs_namespaces, wait_until_gone
from stepscope_workloads.fabric import emulate

pytestmark = needs_namespaces


def inside(namespace: str, *command: str) -> Any:
    """What a program of iproute2 says in a namespace, as JSON."""
    done = subprocess.run(
        ["nsenter", f"--net={namespace}", *command], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def buckets(namespace: str) -> dict[str, int]:
    """Interfaces with a token bucket, and its rate in bits a second; tc tells bytes."""
    return {
        one["dev"]: 8 * one["options"]["rate"]
        for one in inside(namespace, "tc", "-j", "qdisc", "show")
        if one["kind"] == "tbf"
    }


def test_each_rank_has_one_shaped_interface_of_its_own_and_the_switch_shapes_the_way_back() -> None:
    with emulate("400mbit", 1, 2) as fabric:
        assert buckets(fabric.namespace) == {"port0": 400_000_000, "port1": 400_000_000}
        for rank, place in enumerate(fabric.ranks):
            assert buckets(place.namespace) == {"eth0": 400_000_000}
            links = inside(place.namespace, "ip", "-j", "-4", "addr", "show", "up")
            addresses = {link["ifname"]: link["addr_info"][0]["local"] for link in links}
            assert addresses == {"lo": "127.0.0.1", "eth0": f"10.200.1.{rank + 1}"}


def test_nodes_are_fast_inside_and_slow_between() -> None:
    with emulate("2gbit,600mbit", 2, 2) as fabric:
        uplinks = dict.fromkeys(("up0", "down0", "up1", "down1"), 600_000_000)
        ports = {f"port{rank}": 2_000_000_000 for rank in range(4)}
        assert buckets(fabric.namespace) == {**uplinks, **ports}
        places = [place.environment for place in fabric.ranks]
        assert [(place["GROUP_RANK"], place["LOCAL_RANK"]) for place in places] == [
            ("0", "0"),
            ("0", "1"),
            ("1", "0"),
            ("1", "1"),
        ]


def test_the_machines_own_network_is_the_same_before_during_and_after() -> None:
    def links() -> str:
        return subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=True).stdout

    before = links()
    with emulate("1gbit", 1, 2):
        assert links() == before
    assert links() == before


def test_an_exception_leaves_no_namespace() -> None:
    own = held_by(os.getpid())
    made: set[str] = set()
    with pytest.raises(RuntimeError, match="in between"), emulate("1gbit", 1, 2):
        made = held_by(os.getpid()) - own
        raise RuntimeError("in between")
    assert len(made) == 3
    assert held_by(os.getpid()) == own
    assert wait_until_gone(made) == set()


def test_two_fabrics_of_the_same_addresses_exist_side_by_side() -> None:
    with emulate("1gbit", 1, 2) as one, emulate("400mbit", 1, 2) as other:
        assert buckets(one.ranks[0].namespace) == {"eth0": 1_000_000_000}
        assert buckets(other.ranks[0].namespace) == {"eth0": 400_000_000}


TRY = """
import sys
from stepscope_workloads.fabric import emulate
try:
    with emulate("1gbit", 1, 2):
        print("made")
except OSError as error:
    print(error)
"""


def answer(*prefix: str, path: str | None = None) -> str:
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", TRY], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def test_without_iproute2_one_line_says_what_to_install() -> None:
    assert answer(path="/nonexistent") == (
        "an emulated fabric needs ip and tc of iproute2; install iproute2 with root"
    )


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to give up rights")
def test_without_root_or_without_the_right_one_line_says_so() -> None:
    plain_root = answer("setpriv", "--bounding-set", "-all")
    assert plain_root.startswith("cannot make a network namespace (Operation not permitted)")
    assert "leave --fabric out" in plain_root
