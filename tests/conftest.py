"""Rules for the whole suite: where skips are strict, a test that did not run fails the session."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest

# A shell that starts the suite in the background has it, and all its children, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_STRICT = os.environ.get("RLMESH_STRICT_SKIPS") == "1" or os.environ.get("CI") == "true"
_skipped: list[tuple[str, str]] = []


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    _skipped.append((report.nodeid, reason))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _STRICT and _skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not (_STRICT and _skipped):
        return
    terminalreporter.section("skipped tests fail this session (CI=true or RLMESH_STRICT_SKIPS=1)")
    for nodeid, reason in _skipped:
        terminalreporter.write_line(f"{nodeid}: {reason}", red=True)


@pytest.fixture(scope="session", autouse=True)
def own_folder_for_temporary_files() -> Iterator[None]:
    """Keep this session's temporary files apart, so that what it leaves behind can be counted."""
    folder = tempfile.mkdtemp(prefix="rlt-")
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    yield
    tempfile.tempdir = None
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    shutil.rmtree(folder, ignore_errors=True)
