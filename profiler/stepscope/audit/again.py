"""The command that recorded a run, made anew: to record more of it, or to sweep it. From run.json, which names it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ALONE = {
    *("-m", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--standalone"),
    *("--stop", "--gather", "--keep-traces", "--with-stack", "--noise-scale", "--force"),
}
"""Options of torchrun and of `stepscope run` that take no value."""
_OF_THAT_RUN = {
    "--out",
    "--json",
    "--force",
    "--fail-on",
    "--baseline",
    "--tolerance",
    "--annotate",
    "--monitor",
}
"""What was asked for once: files of its own, and gates."""
_NOT_OF_SWEEP = {"--stop", "--gather", "--keep-traces", "--with-stack", "--noise-scale"}
_LONGEST = 160
"""Characters; the script's arguments are left out of a longer command."""


def record_again(run: Mapping[str, Any] | None, steps: int | None = None) -> str:
    """`stepscope run` as it was called, with so many steps."""
    if (words := _words(run)) is None:
        return f"stepscope run {f'--steps {steps}' if steps else '--nproc-per-node N'} SCRIPT"
    changed = {} if steps is None else {"--steps": str(steps)}
    return _command("run", changed, words, without=_OF_THAT_RUN)


def sweep(run: Mapping[str, Any] | None, caps: str) -> str:
    """`stepscope sweep` of the same script over some bucket caps."""
    if (words := _words(run)) is None:
        return f"stepscope sweep --bucket-cap-mb {caps} SCRIPT"
    return _command("sweep", {"--bucket-cap-mb": caps}, words, without=_OF_THAT_RUN | _NOT_OF_SWEEP)


def _words(run: Mapping[str, Any] | None) -> Sequence[str] | None:
    """What followed `stepscope run`; None where the run does not tell, or was not started by that."""
    words = (run or {}).get("command")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    return words[2:] if words[:2] == ["stepscope", "run"] else None


def _command(name: str, changed: Mapping[str, str], words: Sequence[str], without: set[str]) -> str:
    options = [*_options(words)]
    script = list(words[sum(map(len, options)) :])
    kept = [
        word
        for option in options
        if _name(option[0]) not in without and _name(option[0]) not in changed
        for word in option
    ]
    new = [word for option in changed.items() for word in option]
    whole = shlex.join(["stepscope", name, *new, *kept, *script])
    return (
        whole
        if len(whole) <= _LONGEST
        else f"{shlex.join(['stepscope', name, *new, *kept, *script[:1]])} ..."
    )


def _options(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The options before the script, each with its value where that is a word of its own."""
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        length = 1 if "=" in words[place] or _name(words[place]) in _ALONE else 2
        yield words[place : place + length]
        place += length


def _name(word: str) -> str:
    """An option as it is documented: torchrun takes underscores too."""
    return word.partition("=")[0].replace("_", "-")
