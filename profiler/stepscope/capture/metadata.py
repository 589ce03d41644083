"""run.json, schema `stepscope.run/1`: what was run, on what, with which settings, and what recording it cost. Needs no torch."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from stepscope.errors import InputError
from stepscope.json_numbers import refuse_too_large

RUN_SCHEMA = "stepscope.run/1"
RUN_FILE = "run.json"
RANK_FILE = "rank{rank}.meta.json"


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """An optimizer that stepped, in the order of first steps."""

    name: str
    steps: int
    """Steps counted until the measuring was over."""
    is_clock: bool
    """Its step ends a training step."""


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """One training step as the host saw it, from the end of the optimizer step before it to the end of its own."""

    step: int
    """Counted from 0 by the script's own optimizer steps; the number in `ProfilerStep#`."""
    wall_ms: float
    kind: str
    """start-up, unprofiled, profiler-warm-up, recorded, after-export, or other-profiler (the script's own)."""
    device_ms: float | None = None
    """Between device events at the same two places, on a GPU."""


class ProfilerCost(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded steps over unprofiled steps of the same run (device times where there is a GPU, else wall times)."""

    unprofiled_ms: float
    recorded_ms: float
    ratio: float
    ratio_ci: tuple[float, float]
    unprofiled_steps: int
    recorded_steps: int


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that DDP reduces; `index` is DDP's own, into the parameters that require a gradient."""

    index: int
    name: str
    numel: int
    dtype: str


class DdpModule(msgspec.Struct, frozen=True, kw_only=True):
    """A DistributedDataParallel module by its own logging data, read after the recorded steps."""

    module: str
    bucket_cap_bytes: int
    bucket_caps_bytes: list[int] = []
    """In launch order, the last for all further buckets: the first one's is smaller where the script names no cap."""
    find_unused_parameters: bool
    static_graph: bool
    gradient_as_bucket_view: bool
    broadcast_buffers: bool
    comm_hook: str | None
    initial_bucket_bytes: list[int]
    rebuilt: bool
    rebuilt_bucket_bytes: list[int]
    rebuilt_bucket_parameters: list[list[int]]
    """Parameter indices of each bucket after the rebuild, in the order of the buckets."""
    parameters: list[Parameter]
    """In the order in which their gradients were ready in the last iteration, where DDP tells it; else by index."""
    in_ready_order: bool


class FsdpModule(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of fully_shard (FSDP2)."""

    module: str
    numel: int
    """Parameters of the unit itself, over all ranks."""
    reshard_after_forward: bool | int | None


class NoiseScale(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The batch at which the gradient's noise is as large as the gradient, in batches of one rank's optimizer step.

    tr(S) / |G|^2 of McCandlish et al. 2018; times a rank's samples a step it is a number of samples.
    """

    steps: int
    """How many it is averaged over."""
    rank_batches: float | None = None
    rank_batches_low: float | None = None
    """Bootstrap 95 % over the steps."""
    rank_batches_high: float | None = None
    """Absent where the steps set no upper bound."""
    problem: str | None = None
    """Why it can't be told."""


class RankMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a run."""

    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    launch_id: str
    state: str
    """running, recorded (the measuring is over, the script runs on), or ended."""
    written_ns: int
    """Time of day in ns."""
    steps_seen: int
    """Training steps that the script had made by then."""
    device: str
    backend: str | None
    trace: str | None = None
    """File name in the run directory: of the trace, or of its columns where they were gathered."""
    gathered: bool = False
    """Rank 0 has all of this rank's part."""
    trace_bytes: int | None = None
    """Size of the trace that gathered columns were taken from."""
    recorded_steps: list[int] = []
    unfinished_step: int | None = None
    """A step that was going on when the recording had to end; the trace holds its beginning."""
    problem: str | None = None
    """Why nothing, or less than asked for, was recorded."""
    error: str | None = None
    """The exception that ended the script."""
    optimizers: list[Optimizer] = []
    skipped_by_grad_scaler: list[int] = []
    """Steps that a GradScaler left out because of infinities; they count as training steps."""
    step_times: list[StepTime] = []
    ddp: list[DdpModule] = []
    replaced_bucket_caps_mb: list[float] = []
    fsdp: list[FsdpModule] = []
    gradient_norms: list[tuple[float, float]] = []
    """Squared norms by step, of the rank's own gradient and of the reduced one, where the run was asked for its noise scale."""
    gradient_norms_problem: str | None = None
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}


class RankRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What differs from rank to rank."""

    rank: int
    status: str
    """ended or failed."""
    exit_code: int | None = None
    """As torchrun saw it; a negative one is a signal's number."""
    local_rank: int | None = None
    host: str | None = None
    device: str | None = None
    steps_seen: int | None = None
    """Training steps made in all; absent where the rank could not say."""
    ended_ns: int | None = None
    """Time of day in ns at which the script ended."""
    trace: str | None = None
    trace_bytes: int | None = None
    """Size of the trace itself, where `trace` is its gathered columns."""
    recorded_steps: list[int] = []
    unfinished_step: int | None = None
    problem: str | None = None
    error: str | None = None
    step_times: list[StepTime] = []
    profiler_cost: ProfilerCost | None = None


class RunMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """All of run.json."""

    schema: str = RUN_SCHEMA
    stepscope: str
    command: list[str]
    script: str
    started: str
    """UTC, ISO 8601."""
    world_size: int
    backend: str | None
    hosts: list[str]
    versions: dict[str, str]
    environment: dict[str, str]
    """Variables that change overlap, as the ranks had them."""
    set_by_launcher: list[str] = []
    """Those of them that the user had not set: they are torchrun's defaults, or ours."""
    warmup: int
    steps: int
    with_stack: bool
    recorded_steps: list[int]
    """Steps that every rank with a trace recorded whole."""
    optimizers: list[Optimizer] = []
    skipped_by_grad_scaler: list[int] = []
    profiler_cost: ProfilerCost | None = None
    """Over the steps of all ranks."""
    ddp: list[DdpModule] = []
    replaced_bucket_caps_mb: list[float] = []
    """What the script's DDP modules asked for, where the launcher had another cap set: see `stepscope sweep`."""
    fsdp: list[FsdpModule] = []
    noise_scale: NoiseScale | None = None
    """Where the run was asked for it."""
    ranks: list[RankRecord]


def load_run(path: str | Path) -> RunMetadata:
    """Read run.json, given as the file or as its run directory. Raises InputError where it is missing or of another kind."""
    file = Path(path)
    try:
        if file.is_dir():
            file = file / RUN_FILE
        content = file.read_bytes()
        made = msgspec.json.decode(content, type=RunMetadata)
    except FileNotFoundError as error:
        raise InputError(
            f"no {RUN_FILE} at {path}; `stepscope run` writes one into its run directory"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"cannot read {file} as {RUN_SCHEMA}: {error}") from error
    refuse_too_large(content, file)
    return made


def write_json(path: Path, data: msgspec.Struct) -> None:
    """Write `data` as indented JSON; a reader sees the old file or all of the new one, on shared storage too."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
