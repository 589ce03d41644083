"""What can be done about the communication of a step, each quantified from the same inputs."""

from __future__ import annotations

from stepscope.budget.algorithms import across_nodes, hierarchical_all_reduce, shared_uplink_all_reduce
from stepscope.budget.quantities import Time
from stepscope.budget.result import Accumulation, Fixes, Hierarchical, IntraNode
from stepscope.budget.ring import ring_all_reduce
from stepscope.budget.setting import Setting
from stepscope.budget.traffic import traffic

MORE_MICRO_BATCHES = 4
"""Accumulation is quantified for this many times the micro-batches of the setting."""


def efficiency(compute: Time, exposed: Time) -> float:
    """Compute over compute and exposed communication."""
    return compute / (compute + exposed)


def fixes(setting: Setting) -> Fixes:
    """Accumulation, the group inside a node, and a hierarchical all-reduce. ZeRO is in `memory`."""
    return Fixes(
        accumulation=_accumulation(setting),
        intra_node=_intra_node(setting),
        hierarchical=_hierarchical(setting),
    )


def _accumulation(setting: Setting) -> Accumulation:
    """One reduction an optimizer step, while its compute grows with the micro-batches (from ZeRO 2 on, both grow)."""
    count = setting.accumulate * MORE_MICRO_BATCHES
    compute = setting.compute * count
    communication = traffic(setting, setting.ranks, count).total.total
    return Accumulation(
        micro_batches=count,
        compute=compute,
        communication=communication,
        share=communication / compute,
        exposed_efficiency=efficiency(compute, communication),
    )


def _intra_node(setting: Setting) -> IntraNode:
    if setting.one_link is not None:
        return IntraNode(refusal=setting.one_link)
    cost = ring_all_reduce(setting.ranks, setting.message, setting.node.link)
    return IntraNode(
        refusal=None,
        ranks_per_node=setting.node.ranks,
        node_assumed=not setting.node_known,
        available=setting.ranks <= setting.node.ranks,
        cost=cost,
        share=cost.total / setting.step,
    )


def _hierarchical(setting: Setting) -> Hierarchical:
    ranks, node = setting.ranks, setting.node
    if setting.one_link is not None:
        return Hierarchical(refusal=setting.one_link)
    refusal = _refusal(setting)
    if refusal is not None:
        return Hierarchical(ranks_per_node=node.ranks, node_assumed=not setting.node_known, refusal=refusal)
    cost = hierarchical_all_reduce(ranks, setting.message, setting.link, node)
    return Hierarchical(
        ranks_per_node=node.ranks,
        node_assumed=not setting.node_known,
        refusal=None,
        nodes=ranks // node.ranks,
        cost=cost,
        across=across_nodes(ranks, setting.message, setting.link, node),
        share=cost.total / setting.step,
        shared_uplink=shared_uplink_all_reduce(ranks, setting.message, setting.link, node),
    )


def _refusal(setting: Setting) -> str | None:
    node = setting.node.ranks
    if setting.ranks <= node:
        return f"all {setting.ranks} ranks fit in one node of {node}"
    if node == 1:
        return "with one rank a node there is no inside"
    if setting.ranks % node:
        return f"{node} ranks a node, an assumption, do not divide {setting.ranks}; give --gpus-per-node"
    return None
