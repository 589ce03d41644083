"""What the launcher tells each rank to record, and where: plain data that travels in one environment variable."""

from __future__ import annotations

import msgspec

VARIABLE = "STEPSCOPE_CAPTURE"
"""The environment variable; the rank takes it out before the user's script starts."""

DEFAULT_WARMUP = 6
"""Unrecorded steps: 0 and 1 rebuild buckets (with static_graph too), 2 to 4 are timed, 5 warms up the profiler."""
DEFAULT_STEPS = 3
TIMED_AFTER = 3
"""Steps timed after the recording. The one right after it is left out: the ranks leave their exports at different times."""

LEAST_EVERY = 4
"""Of a monitor: a step to warm up in, the recorded one, the one that starts late as the trace was being written, and one
to compare with."""
MONITOR_FILE = "monitor.jsonl"


class CaptureConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One recording: `warmup` unrecorded optimizer steps (at least 1), then `steps` recorded ones."""

    run_dir: str
    warmup: int = DEFAULT_WARMUP
    steps: int = DEFAULT_STEPS
    with_stack: bool = False
    stop: bool = False
    """End the script, with exit code 0, once everything is measured."""
    launch_id: str = ""
    """Tells the ranks of one launcher from others that share the run directory."""
    module: bool = False
    """The script is the name of a module, as with `python -m`."""
    noise_scale: bool = False
    """Take the gradients' norms in steps after all else is measured."""
    expects_manual_steps: bool = False
    monitor_every: int | None = None
    """Record no run, but monitor the script: one step of every so many."""
    gather: bool = False
    """Rank 0 collects what the audit reads of every rank's trace, in place of the traces."""
    keep_traces: bool = False
    """The traces that were gathered from stay, each on its own node."""
    trace_folder: str = ""
    """Where the traces are written, if not into the run directory."""
    bucket_cap_mb: float | None = None
    """The cap that DDP modules get, in place of what the script asks for; None leaves that alone."""

    @property
    def trace_dir(self) -> str:
        """Where the traces are written."""
        return self.trace_folder or self.run_dir

    def encoded(self) -> str:
        """The text for the environment variable."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decoded(cls, text: str) -> CaptureConfig:
        """The opposite of `encoded`."""
        return msgspec.json.decode(text, type=cls)
