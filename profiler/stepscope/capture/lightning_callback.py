"""The monitor as a callback of Lightning: `Trainer(callbacks=[MonitorCallback(every=100)])`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from stepscope.capture.monitor import DEFAULT_EVERY, DEFAULT_OUT, Monitor, monitor


class MonitorCallback(Callback):  # type: ignore[misc]  # Lightning is not there where types are checked
    """Monitors from the beginning of `fit` to its end; `options` are those of `stepscope.monitor`."""

    def __init__(self, every: int = DEFAULT_EVERY, *, out: str = DEFAULT_OUT, **options: Any) -> None:
        self._options = {"every": every, "out": out, **options}
        self._monitor: Monitor | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The loop is about to begin."""
        self._monitor = monitor(**self._options)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The loop is over."""
        self._close(wait=True)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The loop was ended."""
        self._close(wait=False)

    def _close(self, *, wait: bool) -> None:
        if self._monitor is not None:
            self._monitor.close(wait=wait)
            self._monitor = None
