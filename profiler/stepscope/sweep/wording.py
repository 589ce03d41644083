"""What a sweep found, in sentences that end with what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepscope.sweep.plan import AS_IN_SCRIPT, BUCKET_CAP
from stepscope.sweep.result import Row, Sweep
from stepscope.sweep.results import NO_DDP
from stepscope.units import decimals, milliseconds, percent

DDP_DEFAULT = "25"


def label(knobs: Mapping[str, Sequence[str]], candidate: Mapping[str, str]) -> str:
    """A candidate by the knobs that differ: `25 MiB`, or `25 MiB, accumulate=2`."""
    return ", ".join(_setting(name, candidate[name]) for name, values in knobs.items() if len(values) > 1)


def _setting(name: str, value: str) -> str:
    if name != BUCKET_CAP:
        return f"{name}={value}"
    return "the script's own cap" if value == AS_IN_SCRIPT else f"{value} MiB"


def explain(sweep: Sweep) -> str:
    """The answer, as a sentence."""
    text = _answer(sweep)
    return text[:1].upper() + text[1:]


def _answer(sweep: Sweep) -> str:
    if sweep.best is None:
        failed = [row for row in sweep.rows if row.message]
        why = f": {failed[0].label}: {failed[0].message}" if failed else ""
        return f"Nothing could be compared{why}"
    best = sweep.rows[sweep.best.row]
    others = [row for row in sweep.rows if row.over_best is not None and row is not best]
    if not others:
        return f"{best.label} alone was measured, at {_time(best)}: there is nothing to compare it with."
    if best.runs == 1 and all(row.over_best_ci is None for row in others):
        return (
            f"{best.label} has the shortest step, {_time(best)}; one run each can't tell a difference from noise. "
            + _beside(others)
        )
    tied = [sweep.rows[number] for number in sweep.best.tied_with]
    if not tied:
        return f"{best.label} is the fastest: {_time(best)}. {_beside(others)}"
    told = [row for row in others if row not in tied]
    return f"{_untold(sweep, best, tied, told)}{f' {_beside(told)}' if told else ''}"


def _untold(sweep: Sweep, best: Row, tied: Sequence[Row], told: Sequence[Row]) -> str:
    """Which candidates are alike as far as the runs tell, and the range that the answer lies in."""
    alike = sorted((best, *tied), key=_ms)
    kept = _cheapest(alike)
    if told:
        names = f"{_listed([row.label for row in alike])} are not told apart by these runs"
    else:
        noun = (
            "cap"
            if [name for name, values in sweep.knobs.items() if len(values) > 1] == [BUCKET_CAP]
            else "candidate"
        )
        names = f"No {noun} is told from {kept.label} by these runs"
    beside = alike[-1] if kept is best else kept
    low, high = _ms(alike[0]), _ms(alike[-1])
    times = f"{low:,.{decimals((high,))}f} to {milliseconds(high)} {_unit(best)}"
    return f"{names}: {times}. Beside {best.label}, {beside.label} takes {_longer(beside)}."


def _cheapest(rows: Sequence[Row]) -> Row:
    """The one to keep of those that are alike: what the script has, else DDP's default, else the first."""
    for cap in (AS_IN_SCRIPT, DDP_DEFAULT):
        for row in rows:
            if row.knobs.get(BUCKET_CAP) == cap:
                return row
    return rows[0]


def next_step(sweep: Sweep) -> str:
    """What to do now."""
    if sweep.stopped is not None:
        return f"The same command with --out {sweep.folder} goes on with the runs that are missing."
    if sweep.best is None and any(row.status == NO_DDP for row in sweep.rows):
        return "Wrap the model in DistributedDataParallel, or compare what the script does have: --arg and --env take any knob."
    if sweep.best is None:
        return f"See what the script printed in {sweep.folder}/runs/*/log.txt, mend it, and run the same command again."
    best = sweep.rows[sweep.best.row]
    tied = [sweep.rows[number] for number in sweep.best.tied_with]
    if not tied:
        return f"Set {_settings(best)}."
    set_it = f"Keep {_settings(_cheapest((best, *tied)))}: no other is worth a change by these runs."
    if all(row.over_best_ci is None for row in tied):
        return f"The same command with --repeat 3 and --out {sweep.folder} goes on from here and tells."
    needed = [row.rounds_to_tell for row in tied]
    rounds = max((one for one in needed if one is not None), default=None)
    if rounds is None:
        return f"{set_it} A difference so small would take over a hundred rounds to see."
    which = "all of them" if None not in needed else "some of them"
    return (
        f"{set_it} To tell {which} apart takes about {rounds} rounds ({sweep.repeat} so far): the same command with "
        f"--repeat {rounds} and --out {sweep.folder} goes on from here."
    )


def _settings(row: Row) -> str:
    return _listed([_set(name, value) for name, value in row.knobs.items()])


def _set(name: str, value: str) -> str:
    if name != BUCKET_CAP:
        return f"{name}={value}"
    return "the script's own bucket cap" if value == AS_IN_SCRIPT else f"bucket_cap_mb={value} in DDP"


def _time(row: Row) -> str:
    return f"{milliseconds(_ms(row))} {_unit(row)}"


def _ms(row: Row) -> float:
    """What candidates are ranked by."""
    return (row.step_ms or 0.0) if row.micro_batch_ms is None else row.micro_batch_ms


def _unit(row: Row) -> str:
    return "a step" if row.micro_batch_ms is None else "a micro-batch"


def _beside(others: Sequence[Row]) -> str:
    """The slower candidate that says most: the script's own cap, DDP's default, else the next one."""
    own = [row for row in others if row.knobs.get(BUCKET_CAP) in (AS_IN_SCRIPT, DDP_DEFAULT)]
    beside = min(own or others, key=lambda row: row.over_best or 0.0)
    return f"{beside.label} takes {_longer(beside)}."


def _longer(row: Row) -> str:
    assert row.over_best is not None
    text = f"{percent(row.over_best - 1)} longer"
    if row.over_best_ci is None:
        return text
    low, high = (f"{100 * (end - 1):,.1f}" for end in row.over_best_ci)
    return f"{text}, 95 % interval {low} to {high} %"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
