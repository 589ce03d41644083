"""Any bytes give an audit or one clear line: small traces broken at random, audited for as long as asked.

`python -m benchmarks.fuzz --minutes 60` keeps every input that breaks the promise in --out and ends with exit code 1 if
there is one. Audits run in child processes with a limit on memory and processor time, some hundred inputs each; `--again
FOLDER` audits one kept input in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import math
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stepscope.audit.result import Audit
from stepscope.cli.main import main as stepscope

SEEDS = Path(__file__).resolve().parents[1] / "tests" / "data" / "traces"
"""One step each of `stepscope run` on the scripts own_profiler.py (DDP) and fsdp2.py, two gloo ranks."""

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 20
INPUTS_PER_CHILD = 200

_VALUE = re.compile(rb'"([^"\\]{1,24})": ?("[^"\\]*"|-?[0-9.]+|\[[^\[\]]*\])')
_LONG = 100_000
_VALUES = (
    *(
        b"-1",
        b"0",
        b"-0.001",
        b"1e400",
        b"-1e400",
        b"1e2000000",
        b"NaN",
        b"inf",
        b"nan(ind)",
        b"null",
        b"true",
    ),
    *(b"9" * 30, b"9" * 5000, b"9223372036854775807", b"-9223372036854775808", b"4000000000000000.5"),
    *(
        b'"soon"',
        b'""',
        b'"7"',
        b'"-1.5"',
        b'"\\ud800"',
        b'"\xff\xfe"',
        b'"un"escaped"',
        b'"\\"',
        b'"a\nb\x00"',
    ),
    *(
        b"[]",
        b"{}",
        b"[[[]]]",
        b"[-1, 1e30]",
        b"[[2, 3], 4]",
        b'{"traceEvents": []}',
        b"[" * 400 + b"]" * 400,
    ),
    *(b'"' + b"a" * _LONG + b'"', b'"' + b'\\"' * _LONG, b"nan(" * _LONG, b"[" * _LONG, b" " * _LONG),
)
_TOKENS = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"},{",
    b'"traceEvents": [',
    b"\x00",
    b"\xf0\x9f",
    b"e",
)

Mutation = Callable[[bytes, random.Random], bytes]


def _flip(text: bytes, random: random.Random) -> bytes:
    at = random.randrange(len(text))
    return text[:at] + bytes([text[at] ^ 1 << random.randrange(8)]) + text[at + 1 :]


def _slice(text: bytes, random: random.Random) -> slice:
    start = random.randrange(len(text))
    return slice(start, start + random.choice((1, 10, 200, 5000)))


def _cut_out(text: bytes, random: random.Random) -> bytes:
    piece = _slice(text, random)
    return text[: piece.start] + text[piece.stop :]


def _repeat(text: bytes, random: random.Random) -> bytes:
    piece, at = _slice(text, random), random.randrange(len(text))
    return text[:at] + text[piece] * random.choice((1, 2, 20)) + text[at:]


def _insert(text: bytes, random: random.Random) -> bytes:
    at = random.randrange(len(text))
    return text[:at] + random.choice(_TOKENS) + text[at:]


def _truncate(text: bytes, random: random.Random) -> bytes:
    return text[: random.randrange(1, len(text) + 1)]


def _replace_value(text: bytes, random: random.Random) -> bytes:
    """One value, or every value of that name in the file, is another."""
    found = _VALUE.search(text, random.randrange(len(text)))
    if found is None:
        return text
    new = random.choice(_VALUES)
    if len(new) < 100 and random.random() < 0.3:
        return re.sub(
            rb'("%b": ?)("[^"\\]*"|-?[0-9.]+|\[[^\[\]]*\])' % re.escape(found[1]),
            lambda match: match[1] + new,
            text,
        )
    return text[: found.start(2)] + new + text[found.end(2) :]


def _swap_values(text: bytes, random: random.Random) -> bytes:
    """Two values change places: a kernel starts before its launch, a step has another's number, an event overruns."""
    found = [_VALUE.search(text, random.randrange(len(text))) for _ in range(2)]
    first, second = sorted(filter(None, found), key=lambda one: one.start()) if all(found) else (None, None)
    if first is None or second is None or first.end() > second.start():
        return text
    middle = text[first.end(2) : second.start(2)]
    return text[: first.start(2)] + second[2] + middle + first[2] + text[second.end(2) :]


MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _cut_out, _repeat, _insert, _truncate),
    *(_replace_value,) * 4,
    _swap_values,
)


def mutated(text: bytes, random: random.Random) -> bytes:
    """The text after one to four mutations."""
    for _ in range(random.randrange(1, 5)):
        text = random.choice(MUTATIONS)(text, random) or b"{"
    return text


def seeds() -> list[list[bytes]]:
    """The texts of the ranks of each job."""
    jobs: dict[str, list[bytes]] = {}
    for file in sorted(SEEDS.glob("*.pt.trace.json.gz")):
        jobs.setdefault(file.name.partition("_")[0], []).append(gzip.decompress(file.read_bytes()))
    return list(jobs.values())


def files(random: random.Random, jobs: list[list[bytes]]) -> Iterator[tuple[str, bytes]]:
    """The names and contents of one input: a job of which one rank at least is broken."""
    ranks = [text if random.random() < 0.4 else mutated(text, random) for text in random.choice(jobs)]
    ranks[0] = mutated(ranks[0], random)
    if random.random() < 0.1:
        ranks = [b"".join(ranks) if random.random() < 0.5 else ranks[0][:-2] + b"," + ranks[1][1:]]
    for rank, text in enumerate(ranks):
        if random.random() < 0.2:
            yield f"rank{rank}.json", text
            continue
        zipped = gzip.compress(text, 1)
        yield f"rank{rank}.json.gz", mutated(zipped, random) if random.random() < 0.2 else zipped
    if random.random() < 0.05:
        yield "settings.json", b'{"name": "not a trace", "ph": 7}'


def broken_promise(folder: Path) -> str | None:
    """Audit a folder; what is wrong with the way that ended, None if nothing is. A crash is left to the caller."""
    result = folder.with_suffix(".audit.json")
    result.unlink(missing_ok=True)
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        code = stepscope(["audit", str(folder), "--json", str(result)])
    if code == 0:
        return _wrong_with(result.read_bytes())
    lines = complained.getvalue().splitlines()
    if code != 2 or len(lines) != 1 or not lines[0].startswith("stepscope: error: "):
        return f"exit code {code} with {len(lines)} lines: {' / '.join(lines)[:300]}"
    return f"refused, and wrote {result.name}" if result.exists() else None


def _wrong_with(text: bytes) -> str | None:
    json.loads(text, parse_constant=lambda word: 1 / 0)  # NaN and Infinity are no JSON
    audit = msgspec.json.decode(text, type=Audit)
    for rank in audit.ranks:
        for step in rank.steps:
            hidden, exposed, whole = (
                (step.hidden_backward_ms, step.hidden_other_ms),
                step.exposed_ms or 0,
                step.comm_ms or 0,
            )
            known = [part for part in hidden if part is not None]
            apart = (
                whole - sum(known) - exposed
            )  # hidden by one or the other, where launches do not tell by which
            if apart < -1e-6 or (len(known) == len(hidden) and apart > 1e-6 + 1e-9 * whole):
                return f"rank {rank.rank}, step {step.step}: {known} and {exposed} ms make up {whole} ms"
            if min(*known, exposed, step.wall_ms or 0) < 0:
                return f"rank {rank.rank}, step {step.step}: a negative time"
    return None


def write_input(seed: str, folder: Path, jobs: list[list[bytes]]) -> None:
    """One input, the same for the same seed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files(random.Random(seed), jobs):
        (folder / name).write_bytes(content)


def child(seed: str, first: int, folder: Path) -> int:
    """Audit inputs one after the other, saying which before each; ended by its limits at the first that exceeds them."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_BYTES,) * 2)
    jobs = seeds()
    for number in range(first, first + INPUTS_PER_CHILD):
        print(number, flush=True)
        write_input(f"{seed}:{number}", folder, jobs)
        spent = resource.getrusage(resource.RUSAGE_SELF)
        limit = math.ceil(spent.ru_utime + spent.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        wrong = broken_promise(folder)
        if wrong is not None:
            sys.exit(wrong)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if peak > MEMORY_BYTES:
        sys.exit(f"{peak >> 20} MB of memory after {INPUTS_PER_CHILD} inputs")
    return 0


def fuzz(seed: str, minutes: float, out: Path) -> Counter[str]:
    """Run children until the time is over; how many inputs there were, and how often each failure."""
    counts: Counter[str] = Counter()
    end, first = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        folder = out / "now"
        arguments = ["--child", str(first), "--seed", seed, "--out", str(folder)]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.fuzz", *arguments], capture_output=True, text=True, check=False
        )
        numbers = done.stdout.split()
        counts["inputs"] += len(numbers)
        first = int(numbers[-1]) + 1 if numbers else first + 1
        if done.returncode:
            why = (done.stderr.strip().splitlines() or [f"ended with exit code {done.returncode}"])[-1]
            counts[why] += 1
            kept = out / f"{first - 1}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            (out / f"{first - 1}.txt").write_text(done.stderr)
            print(f"{kept}: {why}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="where failing inputs are kept")
    parser.add_argument("--again", type=Path, help="audit this one input here")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.again is not None:
        print(broken_promise(args.again) or "nothing is wrong with it")
        return 0
    if args.child is not None:
        return child(args.seed, args.child, args.out)
    counts = fuzz(args.seed, args.minutes, args.out)
    print(f"{counts.pop('inputs', 0)} inputs in {args.minutes:g} minutes, {sum(counts.values())} failures")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
