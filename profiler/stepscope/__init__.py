"""Profiler and overlap auditor for distributed training steps.

The command line (`stepscope --help`) is the usual way in. From Python, `stepscope.trace.reader.read` reads a trace and
`stepscope.audit.build.audit` judges what was read; `stepscope.audit.result` describes the answer.
"""

__version__ = "0.1.0"
