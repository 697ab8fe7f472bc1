"""Builds the package by maturin, if there is Rust: without it maturin's error has thirty lines."""

import shutil
import sys

from maturin import *  # noqa: F403

if shutil.which("cargo") is None:
    sys.exit(
        "Maypole needs Rust 1.89 or newer to be built, and there is no cargo in PATH. Install Rust from "
        "https://rustup.rs, or install a wheel that was built elsewhere (maturin build --release)."
    )
