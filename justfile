# Short names for commands that CONTRIBUTING.md explains. A change must pass `.ci/run`.

# Runs every check that a change must pass.
ci:
    .ci/run

# Runs the quick half of the checks, for use while working.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test --workspace

# Looks for undefined behaviour and data races, with Miri and the ThreadSanitizer.
soundness *tools:
    .ci/soundness {{tools}}

# Updates the golden files, the drawings in the pages of algorithms, the README and the book.
bless:
    UPDATE=1 cargo test --workspace --test pages --test prices --test cli --test command --test lessons

# Measures every collective on this machine.
perf *arguments:
    cargo run --release -- perf {{arguments}}

# Builds the documentation and opens it in a browser.
doc:
    cargo doc --workspace --no-deps --open
