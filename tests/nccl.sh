#!/usr/bin/env bash
# Runs PyTorch, CuPy and calls of the C interface over Maypole's libnccl.so.2, as two processes on a GPU
# each where there are several, else on one: tests/nccl.sh [STEP...]
#
# NCCL_LIBRARY names the library; without it cargo builds one. PYTHON names a Python with PyTorch
# (python3). All steps together take less than 6 minutes. What a machine lacks is skipped, and the
# table at the end says so. With OUT all output goes to that folder: the table, what failed, and
# everything in one archive. DEVICE=cpu runs the programs over gloo, which checks the programs and
# not the library. DEVICES=0 has both processes on GPU 0, also where there are several. HOSTS=2 has each pretend to be on a
# host of its own, between which couriers carry publications.
#
# The step `beside` runs NVIDIA's nccl-tests with both libraries, one after the other, if NCCL_TESTS names the
# folder of the programs and NCCL_BESIDE the other library. TESTS_ARGUMENTS are those of the programs: without
# them, a GPU a rank.
set -uo pipefail
cd "$(dirname "$0")/.."
ulimit -c 0
programs=bindings/nccl/tests/torch
python=${PYTHON:-python3}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
logs=$(mktemp -d)
export DEVICE=${DEVICE:-cuda} PYTHONDONTWRITEBYTECODE=1 MPS=no
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
begun=$SECONDS
# Seconds that all steps together may take.
most=${SECONDS_AT_MOST:-340}
table=()
failed=0
pipe=

# MPS lets kernels of several processes run side by side on one GPU. Without it they take turns.
start_mps() {
    if ! command -v nvidia-cuda-mps-control >/dev/null; then
        echo "MPS: no, nvidia-cuda-mps-control is not here"
        return
    fi
    pipe=$(mktemp -d /tmp/mps-XXXXXX)
    mkdir "$pipe/log"
    export CUDA_MPS_PIPE_DIRECTORY=$pipe CUDA_MPS_LOG_DIRECTORY=$pipe/log
    # The daemon must not keep the output of this script open.
    if timeout 15 nvidia-cuda-mps-control -d </dev/null >"$pipe/log/start.log" 2>&1 \
        && timeout 20 "$python" -c "$context"; then
        export MPS=yes
        echo "MPS: yes"
    else
        echo "MPS: no, its daemon does not serve a process"
        cat "$pipe"/log/*.log 2>/dev/null | tail -n 20
        stop_mps
    fi
}

# Makes a context and an allocation by the driver alone.
context='
import ctypes
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)]
codes.append(cuda.cuCtxSetCurrent(context))
codes.append(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
raise SystemExit(f"the driver returns {codes}" if any(codes) else 0)
'

versions='
from importlib import metadata
for name in ("torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "cupy-cuda12x", "cupy-cuda13x"):
    try: print(name, metadata.version(name))
    except metadata.PackageNotFoundError: pass
'

# The daemon is told to quit; if it does not, it and its server are ended by their numbers.
stop_mps() {
    [ -n "$pipe" ] || return 0
    cat "$pipe"/log/*.log >"$logs/mps.txt" 2>/dev/null
    local server=
    server=$(echo get_server_list | timeout 5 nvidia-cuda-mps-control 2>/dev/null)
    if ! echo quit | timeout 15 nvidia-cuda-mps-control >/dev/null 2>&1; then
        for process in $server $(cat "$pipe/nvidia-cuda-mps-control.pid" 2>/dev/null); do
            kill -9 "$process" 2>/dev/null
        done
    fi
    rm -rf "$pipe"
    pipe=
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    export MPS=no
}

# Some machines give few files back, so the logs go into one archive. It is renewed behind each
# step, in case that this script is killed.
pack() {
    printf '%s\n' "${table[@]}" >"$out/table.txt"
    tar -czf "$out/logs.tar.gz.new" -C "$logs" . && mv "$out/logs.tar.gz.new" "$out/logs.tar.gz"
}

end() {
    stop_mps
    pack
    rm -rf "$logs"
}
trap end EXIT
trap 'exit 143' TERM INT

wanted=("$@")
skip() {
    table+=("$(printf '%-12s          skipped: %s' "$1" "$2")")
}

# The first line of a log that says why a step was skipped, or what failed.
why() {
    grep -aE -m1 -o 'SKIPPED: .*|WRONG: .*|[A-Za-z]*Error: .*|== .*codes.*' "$1" | cut -c -100
}

# step NAME LIMIT COMMAND...: runs the command for at most LIMIT seconds, if NAME is wanted. A step
# that ends with 77 was skipped.
step() {
    local name=$1 limit=$2 start=$SECONDS verdict code
    shift 2
    if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then return 1; fi
    local left=$((most - (SECONDS - begun)))
    if [ $left -lt 15 ]; then
        skip "$name" "no time is left of $most s"
        return 1
    fi
    if [ "$limit" -gt $left ]; then limit=$left; fi
    printf '\n== %s\n' "$name"
    timeout -k 5 "$limit" "$@" >"$logs/$name.txt" 2>&1
    code=$?
    case $code in
        0) verdict=ok ;;
        77) verdict="skipped: $(why "$logs/$name.txt")" ;;
        124 | 137) verdict="FAILED: not done in $limit s" ;;
        *) verdict="FAILED: $(why "$logs/$name.txt")" ;;
    esac
    tail -n 12 "$logs/$name.txt" | cut -c -300
    case $verdict in FAILED*)
        failed=1
        {
            printf '\n== %s\n' "$name"
            head -c 6000 "$logs/$name.txt"
            echo ...
            tail -c 6000 "$logs/$name.txt"
        } >>"$out/failures.txt"
        ;;
    esac
    table+=("$(printf '%-12s %4d s   %s' "$name" $((SECONDS - start)) "$verdict")")
    pack
    [ "$code" = 0 ]
}

# A program of the folder. traced: with a line for each call of each rank, in two files.
program() { "$python" "$programs/$1.py" "${@:2}"; }
traced() { TRACE=$logs/trace-$1-%r.txt "$python" "$programs/$1.py"; }
# NCCL as PyTorch brings it says that it refuses two ranks of one GPU.
bundled() {
    local text
    text=$(NCCL_LIBRARY= NCCL_DEBUG=WARN "$python" "$programs/hello.py" 2>&1)
    grep -aiE 'duplicate gpu|ncclInvalidUsage|nccl version' <<<"$text" | sort -u | head -n 8
    grep -qi 'duplicate gpu' <<<"$text" || { tail -n 20 <<<"$text"; return 1; }
}
# Every program that was traced has lines of both ranks.
traces() {
    local trace wrong=0
    for trace in ddp fsdp2 p2p graphs; do
        for rank in 0 1; do
            if [ -s "$logs/trace-$trace-$rank.txt" ]; then
                echo "$trace, rank $rank: $(wc -l <"$logs/trace-$trace-$rank.txt") lines"
            else
                echo "WRONG: $trace has no trace of rank $rank"
                wrong=1
            fi
        done
    done
    return $wrong
}
# The programs of NVIDIA's nccl-tests over this library, and over the one that NCCL_BESIDE names.
beside() {
    local arguments=${TESTS_ARGUMENTS:-} library program count
    if [ ! -d "${NCCL_TESTS:-}" ] || [ ! -e "${NCCL_BESIDE:-}" ]; then
        echo "SKIPPED: NCCL_TESTS names no folder, or NCCL_BESIDE no library"
        return 77
    fi
    count=$(tr , '\n' <<<"$DEVICES" | wc -l)
    if [ -z "$arguments" ] && [ "$count" -lt 2 ]; then
        echo "SKIPPED: one GPU, and no TESTS_ARGUMENTS for several ranks of it"
        return 77
    fi
    for program in all_reduce sendrecv alltoall reduce broadcast; do
        for library in "$NCCL_LIBRARY" "$NCCL_BESIDE"; do
            echo "-- $program over $library"
            # shellcheck disable=SC2086 # the arguments are words
            CUDA_VISIBLE_DEVICES=$DEVICES LD_PRELOAD=$library NCCL_MULTI_RANK_GPU_ENABLE=1 \
                timeout 12 "$NCCL_TESTS/${program}_perf" ${arguments:--g $count -b 8 -e 128M -f 16} || return 1
        done
    done
}
export -f program traced bundled traces beside
export programs python logs

if [ "$DEVICE" = cuda ]; then
    if ! nvidia-smi >/dev/null 2>&1; then
        echo "SKIPPED: nvidia-smi finds no GPU"
        exit 0
    fi
    DEVICES=${DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader | head -n 2 | paste -sd,)}
    export DEVICES
    if [ -z "${NCCL_LIBRARY:-}" ]; then
        cargo build --release -p maypole-nccl || exit 1
        built=${CARGO_TARGET_DIR:-target}/release
        NCCL_LIBRARY=$built/libnccl.so.2
        cp "$built/libnccl.so" "$NCCL_LIBRARY" || exit 1
    fi
    NCCL_LIBRARY=$(realpath "$NCCL_LIBRARY") || exit 1
    export NCCL_LIBRARY
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_mode --format=csv,noheader
fi
{
    commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
    echo "library: ${NCCL_LIBRARY:-none}, commit: ${COMMIT:-$commit}"
    "$python" -c "$versions"
    case $DEVICE,${DEVICES:-} in
        cpu,*) ;;
        *,*,*) echo "devices: $DEVICES, one a rank" ;;
        *) start_mps ;;
    esac
} > >(tee "$logs/machine.txt") 2>&1

# A first look, so that a failure of everything is seen early. Without MPS if it does not help.
hello() { NCCL_DEBUG=INFO program hello; }
export -f hello
if ! step hello 50 bash -c hello && [ ${#wanted[@]} = 0 ]; then
    again=no
    if [ "$MPS" = yes ]; then
        echo "once more without MPS"
        stop_mps
        step hello-alone 50 bash -c hello && again=yes
    fi
    # The others would fail alike; these say the most.
    [ $again = yes ] || wanted=(ctypes bundled)
fi
step collectives 80 bash -c 'program collectives'
[ "$DEVICE" = cpu ] || step ctypes 65 bash -c 'program ctypes_ranks'
step p2p 75 bash -c 'traced p2p'
step streams 65 bash -c 'program streams'
step ddp 65 bash -c 'traced ddp'
step fsdp2 80 bash -c 'traced fsdp2'
step graphs 80 bash -c 'traced graphs'
step speed 80 bash -c 'program speed'
if [ "$DEVICE" = cuda ]; then
    step traces 10 bash -c traces
    step cupy 45 bash -c 'program cupy_ranks'
    case $DEVICES in
        *,*) skip bundled "NCCL refuses two ranks of one GPU alone" ;;
        *) step bundled 40 bash -c bundled ;;
    esac
    step beside 120 bash -c beside
fi
step destroy 90 bash -c 'program destroy'
# A process that is killed can take others of MPS with it.
stop_mps
step deaths 120 bash -c 'program deaths'
if [ "$DEVICE" = cuda ]; then
    echo "processes that are left on the GPU:"
    nvidia-smi --query-compute-apps=pid,name --format=csv,noheader
fi

printf '\n'
printf '%s\n' "${table[@]}"
printf 'in %d s\n' $((SECONDS - begun))
exit $failed
