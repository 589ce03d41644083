"""The work that is handed out: one trace file read and classified, the answer as bytes."""

from __future__ import annotations

from stepscope import __version__
from stepscope.errors import InputError
from stepscope.trace.carried import from_bytes, lean, to_bytes
from stepscope.trace.classify import classify
from stepscope.trace.files import TraceFile, located
from stepscope.trace.reader import read
from stepscope.trace.recording import Recording


def recording_of(file: TraceFile, *, whole: bool, helper: bool | None = None) -> Recording:
    """A file's recording; with its trace if whole. InputError as `read` raises it.

    helper: whether a second process may help with a large file; None where it pays.
    """
    found = classify(read(file, helper=helper))
    return found if whole else lean(found)


def answer(file: str, whole: bool) -> tuple[str, bytes | None, str]:
    """What a worker sends back: the version it runs, and the recording or what is wrong with the file."""
    try:
        return __version__, to_bytes(recording_of(located(file), whole=whole, helper=False)), ""
    except InputError as error:
        return __version__, None, str(error)


def outcome(given: tuple[str, bytes | None, str]) -> Recording | InputError:
    """The recording in an answer, or the error. InputError where a worker runs another version than this process."""
    version, content, message = given
    if version != __version__:
        raise InputError(
            f"the workers run stepscope {version} and this is {__version__}; install one version on both"
        )
    return InputError(message) if content is None else from_bytes(content)
