"""A prediction for a terminal: the recommendation first, then every bucket cap, the best schedule, and what it all rests on.

80 columns are enough; piped, it is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from stepscope.predict.result import Predicted, Prediction, Recorded
from stepscope.units import decimals, milliseconds, percent, plural, size
from stepscope_reports.plain import paragraph, shorten, table

WIDTH = 80
WIDEST = 100
_INDENT = "  "


def render(made: Predicted, stream: TextIO) -> None:
    """Write the report to a text stream; colour and a wider terminal are used where the stream is a terminal."""
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    width = max(WIDTH, min(console.width, WIDEST)) if console.is_terminal else WIDTH
    with console.capture() as capture:
        for line in _lines(made, width):
            line.rstrip()
            console.print(line, soft_wrap=True)
    stream.write(capture.get())  # the console itself would end the process when a pipe is closed


def _lines(made: Predicted, width: int) -> Iterable[Text]:
    inner = width - len(_INDENT)
    if made.link.warning is not None:
        yield from (Text(line.plain, "bold") for line in paragraph(made.link.warning, width))
        yield Text()
    for line in paragraph(headline(made), width):
        line.stylize("bold")
        yield line
    yield from _section("Recorded", _sentences(_recorded(made), inner))
    yield from _section(_title(made), _table(made))
    yield from _section("What a bucket takes", _sentences(_link(made), inner))
    yield from _section("Batch", _sentences(_batch(made), inner))
    yield from _section("Assumed", _sentences(made.assumptions, inner))


def _section(title: str, body: Sequence[Text]) -> Iterable[Text]:
    if body:
        yield Text()
        yield Text(title, "bold")
        yield from (Text(_INDENT).append_text(line) for line in body)


def _sentences(texts: Iterable[str], width: int) -> list[Text]:
    return [line for text in texts for line in paragraph(text, width)]


def headline(made: Predicted) -> str:
    """The answer in a sentence or two."""
    best = f"no bucket cap can make a step shorter than {milliseconds(made.best_schedule.step_ms)}"
    chosen = next((one for one in made.caps if one.bucket_cap_mb == made.recommended_mb), None)
    if chosen is None:
        return f"Keep the bucket cap: {made.why}; {best}"
    return (
        f"bucket_cap_mb={chosen.bucket_cap_mb:g}: a step of {milliseconds(chosen.step_ms)} instead of "
        f"{milliseconds(made.present.step_ms)}, shorter by {_gain(chosen)}; {made.why}. {best[0].upper()}{best[1:]}"
    )


def _gain(one: Prediction) -> str:
    interval = ""
    if one.gain_ms_ci is not None:
        low, high = one.gain_ms_ci
        interval = f" (95 % interval {milliseconds(low)} to {milliseconds(high)})"
    return f"{milliseconds(one.gain_ms)}{interval}"


def _recorded(made: Predicted) -> Iterable[str]:
    was = made.recorded
    cap = "" if was.bucket_cap_mb is None else f"bucket_cap_mb={was.bucket_cap_mb:g}{_first(was)}, "
    yield shorten(was.run, WIDTH - len(_INDENT))
    yield (
        f"{plural(was.world_size, 'rank')} on {was.device}, {cap}{plural(len(was.bucket_bytes), 'bucket')} of "
        f"{size(sum(was.bucket_bytes))} in all; {plural(len(was.steps), 'step')} replayed"
    )
    yield f"a recorded step takes {milliseconds(was.recorded_step_ms)}" + (
        f", an unrecorded one {milliseconds(was.step_ms)}: predictions are of the latter"
        if was.step_ms != was.recorded_step_ms
        else ": predictions are of such steps"
    )
    if was.check_ms is not None:
        side = "above" if was.check_ms > 0 else "below"
        yield f"the recorded cap itself is predicted {milliseconds(abs(was.check_ms))} {side} that"


def _first(was: Recorded) -> str:
    first = was.first_bucket_cap_mb
    return "" if first is None else f" but {first:g} for the first bucket (DDP's default)"


def _title(made: Predicted) -> str:
    asked = made.what_if
    told = [
        *([plural(asked.world_size, "rank")] if asked.world_size else []),
        *([f"{asked.gb_per_s:g} GB/s"] if asked.gb_per_s else []),
        *([f"{asked.latency_us:g} us a hop"] if asked.latency_us else []),
        *([f"the fabric of {asked.fabric}"] if asked.fabric else []),
        *(
            [f"{plural(asked.accumulate, 'micro-batch')}".replace("batchs", "batches")]
            if asked.accumulate
            else []
        ),
        *([f"ZeRO-{asked.zero}"] if asked.zero is not None else []),
    ]
    return "Predicted (ms)" + (f" with {', '.join(told)}" if told else "")


def _table(made: Predicted) -> list[Text]:
    rows = [("now", made.present), *((_caps(made, alike), alike[0]) for alike in _alike(made.caps))]
    rows.append(("best schedule", made.best_schedule))
    places = decimals([one.step_ms for _, one in rows])
    columns = ("<cap MiB", "buckets", "largest", "step", "gain", "of step", "exposed", "floor")
    lines = table(columns, [_row(name, one, made.present.step_ms, places) for name, one in rows])
    return [*lines, *_sentences(_footnote(made), WIDTH - len(_INDENT))]


def _alike(caps: Sequence[Prediction]) -> list[list[Prediction]]:
    """The caps by the buckets that they give: those that give the same are one row."""
    found: dict[tuple[int, ...], list[Prediction]] = {}
    for one in caps:
        found.setdefault(tuple(one.bucket_bytes), []).append(one)
    return list(found.values())


def _caps(made: Predicted, alike: Sequence[Prediction]) -> str:
    """The caps of a row, `0.5, 1, 2`; of more than three the first and the last one."""
    names = [f"{one.bucket_cap_mb:g}{'*' if _is_recorded(made, one) else ''}" for one in alike]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]}"


def _is_recorded(made: Predicted, one: Prediction) -> bool:
    """Whether it looks like the recorded setting and is not, for the first bucket had a cap of its own."""
    was = made.recorded
    return was.first_bucket_cap_mb is not None and one.bucket_cap_mb == was.bucket_cap_mb


def _footnote(made: Predicted) -> Iterable[str]:
    if any(_is_recorded(made, one) for one in made.caps):
        was = made.recorded
        yield (
            f"* bucket_cap_mb={was.bucket_cap_mb:g} written in the script: it holds for all buckets. Now is DDP's default, "
            f"{was.first_bucket_cap_mb:g} MiB for the first bucket and {was.bucket_cap_mb:g} for the others"
        )


def _row(name: str, one: Prediction, present: float, places: int) -> list[str]:
    def ms(value: float | None) -> str:
        return "" if value is None else f"{value:,.{places}f}"

    alone = name == "best schedule"
    return [
        name,
        "" if alone else f"{one.buckets:,}",
        "" if alone else size(max(one.bucket_bytes)),
        ms(one.step_ms),
        ms(one.gain_ms),
        percent(one.gain_ms / present),
        ms(one.exposed_ms),
        ms(one.floor_ms),
    ]


def _batch(made: Predicted) -> Iterable[str]:
    if made.global_batch is not None:
        yield f"the global batch is {made.global_batch:,.0f} samples"
    if made.global_batch_growth != 1:
        yield f"the global batch is {made.global_batch_growth:.3g} times the recorded run's: steps do not compare one to one"
    yield from _noise(made)


def _noise(made: Predicted) -> Iterable[str]:
    noise = made.noise_scale
    if noise is None:
        return
    high = "no bound" if noise.rank_batches_high is None else f"{noise.rank_batches_high:,.3g}"
    samples = "" if noise.samples is None else f", {noise.samples:,.0f} samples"
    yield (
        f"gradient noise scale: {noise.rank_batches:,.3g} batches of a rank's step{samples} (95 % interval "
        f"{noise.rank_batches_low or 0:,.3g} to {high} batches)"
    )
    if made.global_batch_growth != 1:
        yield (
            f"by it the same loss takes {noise.steps_factor:.3g} times the steps, so {noise.samples_factor:.3g} times the samples"
        )


def _link(made: Predicted) -> Iterable[str]:
    link = made.link
    if link.alpha_us is None or link.bus_gb_per_s is None:
        yield f"{link.latency_us:,.0f} us and its bytes at {link.gb_per_s:.3g} GB/s, by {link.source}"
    else:
        yield f"alpha {link.alpha_us:,.0f} us a hop and B {link.bus_gb_per_s:.3g} GB/s (bus bandwidth), by {link.source}"
        latency = f"{milliseconds(link.latency_us / 1e3)}, and " if link.latency_us else ""
        takes = f"{latency}{milliseconds(2**20 / 1e6 / link.gb_per_s)} a MiB"
        yield f"so an all-reduce among {plural(made.what_if.world_size or made.recorded.world_size, 'rank')} takes {takes}"
    yield from link.remarks
