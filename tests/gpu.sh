#!/usr/bin/env bash
# Checks and times everything that needs an NVIDIA GPU: tests/gpu.sh
#
# Builds first, unless GPU_TESTS, ORDER_TESTS and MAYPOLE name the programs (the test programs `gpu` and
# `fake_gpu`, and `maypole`), as on a machine without Rust. Without the build it takes about 5 minutes on an H100. What a machine
# lacks is skipped, and the table at the end says so. All output goes to the folder OUT, if it is set.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-$(mktemp -d)}

if [ -z "${GPU_TESTS:-}" ]; then
    cargo build --release --bin maypole || exit 1
    MAYPOLE=target/release/maypole
    built=$(cargo test --test gpu --test fake_gpu --no-run --message-format=json 2>/dev/null \
        | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    GPU_TESTS=$(grep '/gpu-' <<< "$built" | tail -1)
    ORDER_TESTS=$(grep '/fake_gpu-' <<< "$built" | tail -1)
    [ -x "$GPU_TESTS" ] && [ -x "$ORDER_TESTS" ] || { echo "the tests were not built"; exit 1; }
fi

table=()
failed=0

# step NAME LIMIT COMMAND...: runs the command for at most LIMIT seconds.
step() {
    local name=$1 limit=$2 start=$SECONDS verdict
    shift 2
    printf '\n== %s\n' "$name"
    timeout "$limit" "$@" 2>&1 | tee "$out/${name// /-}.txt" | tail -n 40
    case ${PIPESTATUS[0]} in
        0) verdict=ok ;;
        124) verdict="FAILED: not done in $limit s"; failed=1 ;;
        *) verdict="FAILED"; failed=1 ;;
    esac
    table+=("$(printf '%-40s %4d s  %s' "$name" $((SECONDS - start)) "$verdict")")
}

skip() {
    table+=("$(printf '%-40s         skipped: %s' "$1" "$2")")
}

# The tests, whose ranks take so many GPUs in turn.
tests() { TESTS=all TEST_DEVICES=${DEVICES:-1} "$GPU_TESTS" "$@" --test-threads 1; }
# Calls behind a failure, calls that do not match, barriers beside streams that are busy, and graphs
# beside calls: tests of the fake driver, here over the machine's.
order() { TEST_REAL_DRIVER=1 "$ORDER_TESTS" order:: --test-threads 1; }
perf() { "$MAYPOLE" perf --transport cuda --budget 40 "$@"; }
export -f tests order perf
export GPU_TESTS ORDER_TESTS MAYPOLE

if ! nvidia-smi >/dev/null 2>&1; then
    echo "SKIPPED: nvidia-smi finds no GPU"
    exit 0
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
# Ranks on one GPU, and on two where there are as many.
case $(nvidia-smi -L | wc -l) in
    0 | 1) places=1 ;;
    *) places="1 2" ;;
esac

for DEVICES in $places; do
    export DEVICES
    on=$([ "$DEVICES" = 1 ] || echo " on $DEVICES GPUs")
    step "bits$on" 120 bash -c 'tests calls::'
    step "messages and other groups$on" 60 bash -c 'tests messages::'
    step "faults$on" 60 bash -c 'tests faults::'
    step "stress$on" 60 bash -c 'tests stress:: --ignored --nocapture'
done
step "rings along links" 60 bash -c 'tests links::'
if [ -n "${ORDER_TESTS:-}" ]; then
    step "order" 200 bash -c 'order'
else
    skip "order" "ORDER_TESTS names no program"
fi
step "mailboxes in the host" 200 bash -c 'MAYPOLE_CUDA_MAILBOXES=host tests calls:: messages:: faults:: deaths::'
step "hosts" 200 bash -c 'TEST_HOSTS=0011 tests calls::chosen calls::a_graph messages:: faults:: deaths::'
if command -v compute-sanitizer >/dev/null; then
    step "memcheck" 100 compute-sanitizer --tool memcheck --error-exitcode 3 \
        "$GPU_TESTS" calls::chosen messages::a_message_alone --test-threads 1
else
    skip "memcheck" "compute-sanitizer is not installed"
fi
# Processes that share a GPU take turns, so these are few and small.
step "processes" 60 bash -c 'perf -n 2 --sizes 8,64K --iters 5 --warmup 0 all-reduce'
step "perf of 2 ranks" 60 bash -c 'perf -n 2 --threads --sizes 8,64K,1M,16M,128M all-reduce'
step "perf through the host" 60 bash -c 'MAYPOLE_CUDA_MAILBOXES=host perf -n 2 --threads --sizes 8,64K,1M,16M,128M all-reduce'
step "perf of 4 ranks" 100 bash -c 'perf -n 4 --threads --sizes 8,1M,64M all'
skip "NCCL beside" "the step beside of tests/nccl.sh does that"

printf '\n'
printf '%s\n' "${table[@]}"
exit $failed
