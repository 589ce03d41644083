"""What `stepscope cost --run` takes from a run directory: run.json, and audit.json or an audit made of the traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median

from stepscope.audit.result import Audit, Collective, GradientTotals, Rank, Step
from stepscope.budget.quantities import ZERO_TIME, Size, Time
from stepscope.budget.recorded import Operation, Recorded
from stepscope.budget.result import StepComparison
from stepscope.capture.metadata import RunMetadata, load_run
from stepscope.cli.launching import say
from stepscope.cli.progress import progress_bar
from stepscope.cli.stored import AUDIT_FILE, load_audit
from stepscope.errors import InputError
from stepscope.trace.files import local

Measure = Callable[[Step], float | None]


def read_recorded(folder: str) -> Recorded:
    """A recorded run's traffic and compute. Raises InputError for no run directory, and where no step counts."""
    place = local(folder)
    run = load_run(str(place))
    audit = _audit(place)
    valid = {(rank.source, step.step) for rank in audit.ranks for step in rank.steps if step.valid}
    compute = over_steps(audit, lambda step: step.compute_ms)
    if not valid or compute is None:
        raise InputError(f"no step of {folder} counts; see `stepscope audit {folder}` for the reasons")
    operations = tuple(
        _operation(one, one.step)
        for one in sorted(audit.collectives, key=_launched)
        if one.step is not None and (one.source, one.step) in valid
    )
    if not any(one.gradient and one.size for one in operations):
        raise InputError(
            f"the steps of {folder} reduce no gradients of a known size, so there is nothing to budget"
        )
    step, waiting = _step(audit)
    window = over_steps(audit, lambda step: step.backward_compute_ms)
    return Recorded(
        run=folder,
        hosts=tuple(run.hosts),
        backend=run.backend,
        on_cpu=all(rank.device in (None, "cpu") for rank in audit.ranks),
        emulated="--fabric" in run.command or any(word.startswith("--fabric=") for word in run.command),
        world_size=run.world_size,
        label=audit.verdict.label,
        reason=audit.verdict.reason,
        steps=len({number for _, number in valid}),
        compute=Time.from_ms(compute),
        window=None if window is None else Time.from_ms(window),
        parameters=_parameters(run),
        zero=_stage(run),
        operations=operations,
        step=step,
        waiting=waiting,
        remarks=tuple(_remarks(run, operations)),
    )


def _audit(folder: Path) -> Audit:
    """The run's audit.json; where there is none, an audit of its traces, which `stepscope audit` would keep and this does not."""
    file = folder / AUDIT_FILE if folder.is_dir() else folder.with_name(AUDIT_FILE)
    if file.is_file():
        return load_audit(file)
    from stepscope.cli.audit import audit_paths

    say(f"no {file}, so the traces are audited now; `stepscope audit {file.parent}` keeps one")
    with progress_bar("auditing") as progress:
        return audit_paths([str(file.parent)], progress=progress)


def _launched(one: Collective) -> float:
    return one.start_ms if one.launch_ms is None else one.launch_ms


def _operation(one: Collective, step: int) -> Operation:
    def time(value: float | None) -> Time | None:
        return None if value is None else Time.from_ms(value)

    return Operation(
        source=one.source,
        step=step,
        kind=one.kind,
        gradient=one.gradient,
        size=Size.from_bytes(one.bytes) if one.bytes else None,
        ranks=one.group_size,
        start=Time.from_ms(one.start_ms),
        duration=Time.from_ms(one.duration_ms),
        wire=time(one.wire_ms),
        beside_backward=time(one.hidden_backward_ms),
    )


def over_steps(audit: Audit, measure: Measure) -> float | None:
    """Of each counted step the mean over ranks, of the steps the median; None where no step has the figure."""
    steps: defaultdict[int, list[float]] = defaultdict(list)
    for step in _counted(audit.ranks):
        value = measure(step)
        if value is not None:
            steps[step.step].append(value)
    return median(map(mean, steps.values())) if steps else None


def _counted(ranks: list[Rank]) -> Iterator[Step]:
    return (step for rank in ranks for step in rank.steps if step.valid)


def _step(audit: Audit) -> tuple[StepComparison, Time | None]:
    """A step's gradient communication, of the transfer alone where it was told from waiting; and the waiting."""

    def ms(measure: Callable[[GradientTotals], float | None]) -> Time | None:
        value = over_steps(audit, lambda step: None if step.grad is None else measure(step.grad))
        return None if value is None else Time.from_ms(value)

    wire = ms(lambda grad: grad.wire_ms)
    floor = ms(lambda grad: grad.floor_ms)
    if wire is None:
        whole = StepComparison(
            waiting_included=True,
            communication=ms(lambda grad: grad.comm_ms) or ZERO_TIME,
            hidden=ms(lambda grad: grad.hidden_backward_ms + grad.hidden_other_ms) or ZERO_TIME,
            exposed=ms(lambda grad: grad.exposed_ms) or ZERO_TIME,
            floor=floor,
        )
        return whole, None
    transfer = StepComparison(
        waiting_included=False,
        communication=wire,
        hidden=ms(_hidden_transfer) or ZERO_TIME,
        exposed=ms(lambda grad: grad.wire_exposed_ms) or ZERO_TIME,
        floor=floor,
    )
    return transfer, ms(lambda grad: None if grad.wire_ms is None else grad.comm_ms - grad.wire_ms)


def _hidden_transfer(grad: GradientTotals) -> float:
    return (grad.wire_hidden_backward_ms or 0.0) + (grad.wire_hidden_other_ms or 0.0)


def _parameters(run: RunMetadata) -> float | None:
    """Of the model, by the modules that reduce its gradients; None where the run had neither DDP nor FSDP."""
    count = sum(one.numel for module in run.ddp for one in module.parameters) + sum(
        unit.numel for unit in run.fsdp
    )
    return float(count) or None


def _stage(run: RunMetadata) -> int:
    """ZeRO stage of the traffic: FSDP gathers parameters again in backward, unless it keeps them after forward."""
    if not run.fsdp:
        return 0
    return 3 if any(unit.reshard_after_forward is not False for unit in run.fsdp) else 2


def _remarks(run: RunMetadata, operations: tuple[Operation, ...]) -> Iterator[str]:
    if any(one.gradient and one.size is None for one in operations):
        yield "Collectives whose size was not recorded are left out."
    slower, cost = "", run.profiler_cost
    if cost is not None and cost.ratio > 1.1 and (cost.ratio_ci is None or cost.ratio_ci[0] > 1):
        slower = f"; recording made a step {cost.ratio:.2f} times as long as an unrecorded one"
    yield f"Compute is that of the whole recorded step, optimizer too, slowed by what ran beside it{slower}."
