"""The worked example that the budget is held to: 1.3e9 parameters on 32 ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepscope.budget.links import Link
from stepscope.budget.quantities import Rate, Time
from stepscope.budget.setting import Setting

LINK = Link(Time.from_us(20), Rate.from_gb_per_s(25))

WORKED = Setting(ranks=32, parameters=1.3e9, link=LINK, compute=Time.from_ms(400))


def worked(**changes: Any) -> Setting:
    """The worked example with some inputs changed."""
    return replace(WORKED, **changes)
