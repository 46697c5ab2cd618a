#!/usr/bin/env bash
# Runs the executable of the GPU tests on a GPU host.
#
#   gpu/test.sh EXECUTABLE [FILTER] [ARGUMENT...]
#
# Without a filter: everything but the full size. `gpu/test.sh EXECUTABLE full::` runs that, about 40 GB of host memory
# wanted. All numbers go to $OUT/gpu-tests.json, or to ./gpu-tests.json.
#
# Built where there is no GPU:
#   . target/cuda-12.4/env.sh    # after gpu/toolkit.sh
#   cargo test --features cuda --test gpu --no-run
#   strip -o gpu-tests target/debug/deps/gpu-…
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 64; }
executable=$1
shift

# cuBLAS and cuRAND of a Python environment, where they are in no place that the executable looks in by itself.
for python in python3 python; do
    command -v "$python" >/dev/null || continue
    libraries=$("$python" - <<'PYTHON' || true
import glob, site
roots = site.getsitepackages() + [site.getusersitepackages()]
print(":".join(folder for root in roots for folder in sorted(glob.glob(root + "/nvidia/*/lib"))))
PYTHON
)
    [ -n "$libraries" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
    break
done

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader
exec "$executable" --json "${OUT:-.}/gpu-tests.json" "$@"
