"""Provenance against what git and the operating system say themselves."""

import os
import subprocess
from pathlib import Path

from engram.core.provenance import commit, digest, machine


def test_commit_is_the_head_of_the_repository_that_holds_the_code() -> None:
    here = Path(__file__).resolve().parent
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    assert commit().removesuffix("+") == asked.stdout.strip()


def test_machine_names_the_number_of_cpus() -> None:
    assert f", {os.cpu_count()} CPUs, " in machine()


def test_a_digest_is_of_the_files_that_are_meant() -> None:
    assert digest("core/provenance.py") == digest("core/provenance.py", "core/provenance*.py")
    assert digest("core/provenance.py") != digest("core/types.py")
