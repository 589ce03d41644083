"""An audit and its files to a second opinion: the one entry to this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope import __version__
from stepscope.second_opinion import hta, plugin
from stepscope.second_opinion.facts import FileFacts
from stepscope.second_opinion.figures import Answer
from stepscope.second_opinion.peers import INSTALL, Asked, Limits, Reply, ask, version_of
from stepscope.second_opinion.result import Figure, Opinion, Peer, SecondOpinion


@dataclass(frozen=True, slots=True)
class _Tool:
    """A peer: the module that asks it, and its definitions computed from our data."""

    name: str
    module: str
    figures: Callable[[FileFacts, Answer], list[Figure]]
    remarks: Callable[[FileFacts], list[str]]
    why_no_figure: Callable[[FileFacts], str | None]


_TOOLS = (
    _Tool(hta.NAME, "stepscope.second_opinion.ask_hta", hta.figures, hta.remarks, hta.why_no_figure),
    _Tool(
        plugin.NAME,
        "stepscope.second_opinion.ask_plugin",
        plugin.figures,
        plugin.remarks,
        plugin.why_no_figure,
    ),
)

Progress = Callable[[int, int, str], None]


def second_opinion(
    files: Sequence[FileFacts], limits: Limits | None = None, progress: Progress | None = None
) -> SecondOpinion:
    """What every installed peer says of the files, beside what we do, with our own data under the peer's definition."""
    limits = limits or Limits()
    peers = [_peer(tool) for tool in _TOOLS]
    asked: dict[str, Asked] = {}
    for done, (tool, peer) in enumerate(zip(_TOOLS, peers, strict=True)):
        if progress is not None:
            progress(done, len(_TOOLS), tool.name)
        if peer.missing is None:
            asked[tool.name] = ask(tool.module, [Path(file.recording.source) for file in files], limits)
    return SecondOpinion(
        stepscope=__version__,
        peers=peers,
        opinions=[
            _opinion(tool, file, asked[tool.name]) for file in files for tool in _TOOLS if tool.name in asked
        ],
    )


def _peer(tool: _Tool) -> Peer:
    installed = version_of(tool.name)
    missing = None if installed else f"{tool.name} is not installed: {INSTALL}"
    return Peer(name=tool.name, version=installed, missing=missing)


def _opinion(tool: _Tool, file: FileFacts, asked: Asked) -> Opinion:
    reply = asked.replies.get(str(Path(file.recording.source).resolve()))
    answer = reply.answer if reply is not None else {}
    return Opinion(
        peer=tool.name,
        source=file.recording.source,
        rank=file.rank.rank,
        error=None if "overlap" in answer else _error(tool, file, asked, reply),
        figures=tool.figures(file, answer),
        remarks=tool.remarks(file),
    )


def _error(tool: _Tool, file: FileFacts, asked: Asked, reply: Reply | None) -> str:
    """Why a peer has no overlap: what it raised, and what our data tells of that."""
    if reply is None:
        return asked.ended or "it gave no answer"
    why = tool.why_no_figure(file)
    if reply.error is not None:
        return f"{reply.error}; {why}" if why else reply.error
    return f"no overlap: {why or 'our data does not tell why'}"
