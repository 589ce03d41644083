"""The monitor as a callback of Hugging Face's Trainer: `Trainer(..., callbacks=[MonitorCallback(every=100)])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from stepscope.capture.monitor import DEFAULT_EVERY, DEFAULT_OUT, Monitor, monitor


class MonitorCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there where types are checked
    """Monitors from the beginning of `train` to its end; `options` are those of `stepscope.monitor`."""

    def __init__(self, every: int = DEFAULT_EVERY, *, out: str = DEFAULT_OUT, **options: Any) -> None:
        self._options = {"every": every, "out": out, **options}
        self._monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The loop is about to begin."""
        self._monitor = monitor(**self._options)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The loop is over."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
