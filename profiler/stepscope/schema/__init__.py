"""The JSON Schema of audit.json, `audit-1.json` beside this file; `stepscope.schema.generate` makes it from the code."""
