"""Device traces with known truth: Kineto traces of every rank of a declared job, and what each figure of them must be.

    simulation = Simulation(Job(ranks=8, causes=(HostSync(where="backward"),)))
    documents = list(simulation.documents())
    truth = simulation.truth()

It shares no code with the analyser that it tests, and needs no GPU and no torch.
"""

from __future__ import annotations

from typing import Any

from stepscope_workloads.simulate.causes import CAUSES, Cause, parse
from stepscope_workloads.simulate.job import Clock, Fabric, Host, Job, Layer, Model, uniform
from stepscope_workloads.simulate.outcome import Simulation, write

__all__ = [
    "CAUSES",
    "Cause",
    "Clock",
    "Fabric",
    "Host",
    "Job",
    "Layer",
    "Model",
    "Simulation",
    "parse",
    "simulate",
    "truth",
    "uniform",
    "write",
]


def simulate(job: Job) -> list[dict[str, Any]]:
    """One Kineto document a rank."""
    return list(Simulation(job).documents())


def truth(job: Job) -> dict[str, Any]:
    """What every figure of the job's traces must be."""
    return Simulation(job).truth()
