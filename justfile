# Short names for commands that CONTRIBUTING.md explains. `.ci/run` is what decides.

# What every change must pass.
ci:
    .ci/run

# The quick half, while working.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test --workspace

# Writes golden drawings, pages and the README anew.
bless:
    UPDATE=1 cargo test --test drawings --test readme

# Measures every collective on this machine.
perf *arguments:
    cargo run --release -- perf {{arguments}}

doc:
    cargo doc --workspace --no-deps --open
