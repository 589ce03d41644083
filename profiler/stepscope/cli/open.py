"""Open a run as a page in the browser, or TensorBoard on it.

RUN is a run directory, a folder of traces, or an audit.json. The page, report.html
beside audit.json, is written if it is not there or is older than that. Without a
display the command says how to look at it from another machine.

--tensorboard serves the run with TensorBoard and PyTorch's profiler plugin until
Ctrl+C; its view "Distributed" lays the ranks side by side. (Its view "Trace" loads
a script from the internet.)

example:
  stepscope open runs/demo
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
import webbrowser
from pathlib import Path

from stepscope.cli.audit import audit_paths
from stepscope.cli.progress import progress_bar
from stepscope.cli.reports import find_report
from stepscope.cli.stored import AUDIT_FILE, load_audit, stored_file
from stepscope.errors import InputError
from stepscope.trace.files import local

REPORT_FILE = "report.html"

_GENERATOR = b'<meta name="generator" content="stepscope '
_HEAD_BYTES = 4096
"""So far into a page of ours its generator is named."""

_PORT = 8000
"""Where the suggested server listens unless --port says otherwise."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stepscope open`."""
    parser.add_argument("run", metavar="RUN", help="run directory, folder of traces, or audit.json")
    parser.add_argument("--tensorboard", action="store_true", help="serve the run with TensorBoard")
    parser.add_argument("--no-browser", action="store_true", help="say where it is and open nothing")
    parser.add_argument("--port", type=_port, metavar="N", help="port for TensorBoard (0: any that is free)")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number from 0 to 65535")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Make the page where it is missing, and show it; or serve the run."""
    if args.tensorboard:
        from stepscope.cli.tensorboard import serve

        serve(local(args.run), args.port, browser=not args.no_browser and has_display())
        return 0
    page = page_of(args.run)
    if not args.no_browser and has_display() and webbrowser.open(page.resolve().as_uri()):
        print(f"Opened {page}")
    else:
        print("\n".join(how_to_look(page, args.port or _PORT)))
    return 0


def has_display() -> bool:
    """Whether a browser would have where to show itself; one in a terminal would take that over."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def page_of(run: str) -> Path:
    """The page of a run, written now if it is missing or older than the audit. Raises InputError where there is no run."""
    audited = stored_file(run) or _audit(local(run))
    page = audited.with_name(REPORT_FILE) if audited.name == AUDIT_FILE else audited.with_suffix(".html")
    if page.is_file() and not _is_ours(page):
        raise InputError(
            f"{page} is no page of stepscope's and stays as it is; move it away, or name another with "
            f"`stepscope audit {run} -o FILE.html`"
        )
    if not page.is_file() or page.stat().st_mtime_ns < audited.stat().st_mtime_ns:
        find_report("html").write(load_audit(audited), page)
        print(f"Wrote {page}")
    return page


def _is_ours(page: Path) -> bool:
    """Whether a page says that this program made it."""
    with page.open("rb") as stream:
        return _GENERATOR in stream.read(_HEAD_BYTES)


def _audit(folder: Path) -> Path:
    """Audit what lies in a folder and keep the result there."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no run; name a run directory, a folder of traces or an audit.json")
    with progress_bar("auditing") as progress:
        made = audit_paths([str(folder)], progress=progress)
    find_report("json").write(made, folder / AUDIT_FILE)
    print(f"Wrote {folder / AUDIT_FILE}")
    return folder / AUDIT_FILE


def how_to_look(page: Path, port: int) -> list[str]:
    """Ways to see a file of this machine from one with a browser."""
    place = page.resolve()
    server = ["python", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory"]
    return [
        f"The page is {page}. No browser was opened here; on a machine that has one, copy it:",
        f"  scp {socket.gethostname()}:{shlex.quote(str(place))} .",
        "or serve it from here,",
        f"  {shlex.join([*server, str(place.parent)])}",
        f"and there, forward the port and open http://localhost:{port}/{page.name}:",
        f"  ssh -L {port}:localhost:{port} {socket.gethostname()}",
    ]
