"""The JSON report is audit.json."""

from __future__ import annotations

import io
import json

import msgspec

import sample_audits
from stepscope.audit.result import Audit
from stepscope_reports import json_report


def text_of(audit: Audit) -> str:
    stream = io.StringIO()
    json_report.render(audit, stream)
    return stream.getvalue()


def test_the_audit_comes_back_whole() -> None:
    audit = sample_audits.comm_bound()
    assert msgspec.json.decode(text_of(audit), type=Audit) == audit


def test_keys_stand_in_the_order_of_the_schema_and_absent_fields_are_left_out() -> None:
    text = text_of(sample_audits.no_communication())
    assert list(json.loads(text))[:4] == ["schema", "stepscope", "verdict", "ranks"]
    assert list(json.loads(text)["verdict"]) == ["label", "reason", "host_bound", "explanation"]
    assert text.startswith('{\n  "schema": "stepscope.audit/1",\n') and text.endswith("\n}\n")
