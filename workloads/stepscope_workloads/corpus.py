"""A small English-like text made by a seeded grammar, as byte tokens, so that training needs no download."""

from __future__ import annotations

import random

import torch
from torch import Tensor

SENTENCES = 8_000  # about 400 kB
ASCII_SIZE = 128  # every token is below this, so it is the least vocabulary a model may have
LONGEST_BLOCK = 65_536  # a context has to fit in the text many times over

# Few words and fixed word order: a model gains from the letters, then the words, then the order within seconds.
_GRAMMAR: dict[str, tuple[str, ...]] = {
    "sentence": (
        "SUBJECT VERB OBJECT.",
        "SUBJECT VERB OBJECT PLACE.",
        "PLACE, SUBJECT VERB OBJECT.",
        "SUBJECT VERB OBJECT because SUBJECT VERB OBJECT.",
    ),
    "SUBJECT": ("the NOUN", "the ADJECTIVE NOUN", "every NOUN", "NAME"),
    "OBJECT": ("a NOUN", "the ADJECTIVE NOUN", "NAME", "NUMBER NOUNs"),
    "PLACE": ("near the NOUN", "behind NAME", "under a ADJECTIVE NOUN"),
    "NOUN": ("river", "lantern", "baker", "sparrow", "machine", "garden", "letter", "winter"),
    "ADJECTIVE": ("quiet", "golden", "narrow", "patient", "broken", "sudden"),
    "VERB": ("follows", "remembers", "carries", "paints", "answers", "repairs"),
    "NAME": ("Ada", "Blaise", "Emmy", "Sofia", "Leonhard"),
    "NUMBER": ("two", "three", "seven", "twelve"),
}


def _expand(symbol: str, source: random.Random) -> str:
    """Replace a symbol by one of its productions, drawn at random, until only words are left."""
    production = source.choice(_GRAMMAR[symbol])
    for inner in _GRAMMAR:
        while inner in production:
            production = production.replace(inner, _expand(inner, source), 1)
    return production


def text(sentences: int = SENTENCES, seed: int = 0) -> str:
    """Return that many sentences, one a line; the same seed always gives the same text."""
    source = random.Random(seed)
    return "\n".join(_expand("sentence", source) for _ in range(sentences))


def tokens() -> Tensor:
    """Return the corpus as one int64 tensor of byte values, each below ASCII_SIZE."""
    return torch.frombuffer(bytearray(text(), "ascii"), dtype=torch.uint8).long()
