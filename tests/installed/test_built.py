"""What the source distribution and the wheel hold."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import PurePosixPath

import pytest

from packaged import Built
from stepscope import __version__

pytestmark = pytest.mark.slow

ROOTS = ("profiler/", "reports/", "workloads/")
PACKAGES = ("stepscope", "stepscope_reports", "stepscope_workloads")
MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg"}


def test_the_source_distribution_is_the_project_less_the_gallery_and_what_only_git_reads(
    built: Built, files: set[str]
) -> None:
    with tarfile.open(built.sdist) as archive:
        inside = {member.name.partition("/")[2] for member in archive if member.isfile()}
    kept = {file for file in files if not file.startswith("reports/gallery/") or "/causes/" in file}
    made = {file for file in inside if ".egg-info/" in file} | MADE_BY_SETUPTOOLS
    assert inside - made == kept - {".gitignore"}


def test_the_wheel_is_the_three_packages_with_all_their_files(built: Built, files: set[str]) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    below_roots = {file.partition("/")[2] for file in files if file.startswith(ROOTS)}
    assert inside == {file for file in below_roots if PurePosixPath(file).parts[0] in PACKAGES}
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside


def test_both_carry_the_version_that_the_code_has(built: Built) -> None:
    assert built.sdist.name == f"stepscope-{__version__}.tar.gz"
    assert built.wheel.name == f"stepscope-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(built.wheel) as archive:
        metadata = BytesParser().parsebytes(archive.read(f"stepscope-{__version__}.dist-info/METADATA"))
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
