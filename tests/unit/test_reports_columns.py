"""Tables keep to 80 columns, and small times keep their decimals beside large ones."""

from __future__ import annotations

import msgspec

import sample_audits
from terminal_text import rendered, section


def test_the_widest_of_other_communication_fits() -> None:
    """Unused parameters' map has the longest name of what a collective may carry."""
    audit = sample_audits.comm_bound()
    role, phase = "unused-parameter-map", "optimizer"
    rows = [
        msgspec.structs.replace(one, role=role, phase=phase) for one in audit.collectives if not one.gradient
    ]
    text = rendered(msgspec.structs.replace(audit, collectives=rows))
    assert role in text
    assert max(map(len, text.splitlines())) <= 80


def test_small_times_keep_a_decimal_beside_steps_of_seconds() -> None:
    audit = sample_audits.comm_bound()
    long = [
        msgspec.structs.replace(rank, steps=[msgspec.structs.replace(s, wall_ms=1234.5) for s in rank.steps])
        for rank in audit.ranks
    ]
    rows = section(rendered(msgspec.structs.replace(audit, ranks=long)), "The average counted step")
    assert rows[0] == "  step                            1,234 ms"
    assert "      floor                        20.0 ms  these buckets can do no better" in rows
