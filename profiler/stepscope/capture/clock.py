"""Which optimizer's step ends a training step, decided from the order in which a script's optimizers step.

A script with one optimizer has one answer. A GAN steps two in turn: the training step ends with the last of them. With several
critic steps for one generator step the generator, the rare one, ends it. Nothing here knows torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_ROUNDS_ABSENT = 32
"""An optimizer that has not stepped while another did so this many times is no part of the cycle any more."""


@dataclass
class StepClock:
    """Counts the steps of every optimizer and names the one that ends a training step.

    A *round* ends when an optimizer steps that already has stepped in it, so the number of rounds is the number of steps of the
    busiest optimizer at any time.
    """

    counts: dict[int, int] = field(default_factory=dict)
    """Steps made so far by each optimizer, in the order in which they first stepped."""
    _last_round: dict[int, int] = field(default_factory=dict)
    _round: int = 0
    _in_round: set[int] = field(default_factory=set)

    def observe(self, key: int) -> None:
        """Note one step of the optimizer `key`."""
        if key in self._in_round:
            self._round += 1
            self._in_round.clear()
        self._in_round.add(key)
        self.counts[key] = self.counts.get(key, 0) + 1
        self._last_round[key] = self._round

    @property
    def key(self) -> int | None:
        """The optimizer that ends a training step: the rarest that still steps, the last to appear among equals."""
        alive = [key for key in self.counts if self._round - self._last_round[key] < MAX_ROUNDS_ABSENT]
        # In mid-cycle the early optimizers are one ahead, never behind, so the smallest count is the late or rare one.
        return min(reversed(alive), key=lambda key: self.counts[key], default=None)

    @property
    def steps(self) -> int:
        """Training steps completed so far: those of the optimizer that ends a step, 0 before any step."""
        return self.counts[self.key] if self.key is not None else 0
