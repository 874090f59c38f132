"""Chromium, as tests of pages run it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def chromium(page: Path, width: int, folder: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    quiet = "gpu quic background-networking component-update sync extensions"
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in quiet.split()),
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},2000",
        *arguments,
        page.as_uri(),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
