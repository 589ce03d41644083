"""Which framework reduces the gradients, as far as a recording tells: a fix names the knobs of that one."""

from __future__ import annotations

from stepscope.audit.case import Case
from stepscope.replay.assignment import MIB
from stepscope.trace import host, roles

DDP, FSDP, DEEPSPEED = "DDP", "FSDP", "DeepSpeed"


def framework_of(case: Case) -> str:
    """One of the three; DDP where nothing speaks for another."""
    return case.shared("framework", lambda: _framework(case))


def deepspeed_buckets(cap_mb: float, element_size: int) -> str:
    """DeepSpeed's settings for buckets of `cap_mb` MiB, whose elements have so many bytes; ZeRO 2 and 3 fill them in backward."""
    elements = int(cap_mb * MIB / element_size)
    return f'DeepSpeed\'s "zero_optimization": {{"overlap_comm": true, "reduce_bucket_size": {elements}}}'


def _framework(case: Case) -> str:
    """FSDP and DDP name themselves in a trace. DeepSpeed does not: it gathers parameters where neither of the two is."""
    names = {name for recording in case.recordings for name in recording.trace.names}
    if any(map(host.is_fsdp_reduce, names)):
        return FSDP
    gathered = any(
        op.kind == "all_gather" and op.role == roles.PARAMETER
        for recording in case.recordings
        for op in recording.collectives
    )
    return DEEPSPEED if gathered and not any(map(host.is_ddp_forward, names)) else DDP
