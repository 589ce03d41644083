"""What makes a verdict impossible (METRICS section 7): said as reasons, in the order of how basic they are."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.trace.recording import Phase, Recording


def gates_of(recordings: Sequence[Recording]) -> list[str]:
    """The reasons why these recordings can't carry a verdict; empty if they can."""
    reasons: list[str] = []
    for recording in recordings:
        reason = _gate(recording)
        if reason and reason not in reasons:
            reasons.append(reason)
    return reasons


def _gate(recording: Recording) -> str | None:
    """The first of the reasons that holds; they go from the file's form to what was recorded."""
    compute, comm = recording.compute, recording.collectives
    no_launches = len(compute) > 0 and bool((compute.phase == Phase.UNKNOWN).all())
    no_backward = not (compute.phase == Phase.BACKWARD).any()
    checks = (
        (
            any(warning.code == "no-categories" for warning in recording.warnings),
            "the file was made without device activities (its events carry no category)",
        ),
        (recording.truncated, "the file is truncated"),
        (
            not comm and _transfers_unrecorded(recording),
            "collectives were launched but the file holds no device activities, so none of their transfers",
        ),
        (
            not comm and any(warning.code == "unreadable-events" for warning in recording.warnings),
            "some events could not be read, and what is left has no collective",
        ),
        (not len(compute), "no compute was recorded" + (", only communication" if comm else "")),
        (
            bool(comm) and no_launches,
            "no launch records: backward can't be told from the rest (a GPU-only trace)",
        ),
        (
            bool(comm) and no_backward,
            "no backward was recorded: there is nothing to hide gradient communication behind",
        ),
        (
            bool(comm) and not any(op.gradient for op in comm),
            "gradient communication can't be told from the rest",
        ),
    )
    return next((reason for holds, reason in checks if holds), None)


def _transfers_unrecorded(recording: Recording) -> bool:
    """Whether collectives of several ranks were launched in a recording without the device that executes them."""
    several = recording.header.world_size != 1
    return several and recording.device in ("cpu", "none") and recording.communication_operators > 0
