#!/usr/bin/env bash
# Runs the executable of the GPU tests on a GPU host.
#
#   gpu/test.sh EXECUTABLE [FILTER] [ARGUMENT...]
#
# EXECUTABLE may be compressed (.gz, .xz). Without a filter everything runs but the full size, which `full::` asks for.
# All numbers go to gpu-tests.json in the folder that $OUT names, else in the present one. How it is built:
# CONTRIBUTING.md, "On a GPU".
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 64; }
executable=$1
shift
[ -f "$executable" ] || { echo "gpu/test.sh: there is no file $executable" >&2; exit 64; }

case $executable in
*.gz | *.xz)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    [ "${executable##*.}" = gz ] && unpack=gzip || unpack=xz
    "$unpack" -dc "$executable" >"$folder/gpu-tests"
    executable=$folder/gpu-tests
    ;;
esac
# A copy may have lost its mode.
[ -x "$executable" ] || chmod +x "$executable"
[ "${executable#*/}" != "$executable" ] || executable=./$executable

# NVIDIA's wheels of a Python that is no active environment are looked into on request only.
if [ -z "${VLASH_CUDA_LIBRARIES:-}${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && command -v python3 >/dev/null; then
    find='import glob, nvidia; print(":".join(f for p in nvidia.__path__ for f in sorted(glob.glob(p + "/*/lib"))))'
    VLASH_CUDA_LIBRARIES=$(python3 -c "$find" 2>/dev/null || true)
    export VLASH_CUDA_LIBRARIES
fi

if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.used,memory.total --format=csv,noheader || true
fi
"$executable" --json "${OUT:-.}/gpu-tests.json" "$@"
