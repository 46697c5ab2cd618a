#!/usr/bin/env bash
# Lays out the part of CUDA 12.4 that a build with `--features cuda` needs, without root and without a GPU.
#
#   gpu/toolkit.sh [FOLDER]     (default: target/cuda-12.4)
#   source FOLDER/env.sh        what cargo needs to find it
#
# nvcc and its back ends come from Debian's packages (non-free, suite trixie), unpacked and not installed; the headers
# from NVIDIA's wheels of the same release. 12.4, so that kernels run on drivers from 550 and on JetPack from 6.1: what
# a newer nvcc writes, an older driver refuses. Versions are pinned, packages are checked by the archive's signatures
# (Debian) and by SHA-256 (wheels). About 120 MB of downloads; what is there already is not fetched again.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/cuda-12.4}
here=$PWD/gpu
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
stamp=$folder/.complete-4

fail() {
    echo "gpu/toolkit.sh: $*" >&2
    exit 1
}

[ "$(uname -m)" = x86_64 ] || fail "the packages are laid out for x86_64 hosts; on $(uname -m) set NVCC to a CUDA 12 nvcc of your own"
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing: lay it out on Debian or Ubuntu, or set NVCC to a CUDA 12.4 nvcc of your own"
done
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || fail "Debian's signing keys are not in $keys: on Ubuntu, apt-get install debian-archive-keyring"
command -v python3 >/dev/null || fail "python3 is missing: it unpacks the header packages"

# name=version of the packages of Debian's non-free section.
debian=(nvidia-cuda-toolkit=12.4.131~12.4.1-2 libnvvm4=12.4.131~12.4.1-2 libcudart12=12.4.127~12.4.1-2)
# name==version sha256; the cccl of the 12.4 release lacks <nv/target>, that of 12.5 has it and fits.
wheels="\
nvidia-cuda-runtime-cu12==12.4.127 --hash=sha256:64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5
nvidia-cuda-nvcc-cu12==12.4.131 --hash=sha256:e4c9a35435c3b0e36c6397c5696334c9ea6650e524736cbd1c5d345ea099bb04
nvidia-cuda-cccl-cu12==12.5.39 --hash=sha256:ec1666d8f9a7d6636853f794792b4daa162e3d362255a6d47631df014f61110a"

fetch_debian() {
    local lists=$work/apt mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
    mkdir -p "$lists/state/lists/partial" "$lists/cache/archives/partial"
    echo "deb [arch=amd64 signed-by=$keys] $mirror trixie non-free" >"$lists/sources.list"
    local apt=(apt-get -q -o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State=$lists/state" -o Dir::State::status=/dev/null -o "Dir::Cache=$lists/cache"
        -o APT::Architecture=amd64 -o APT::Architectures=amd64)
    "${apt[@]}" update >/dev/null || fail "the package lists of $mirror (trixie, non-free) could not be read"
    (cd "$work" && "${apt[@]}" download "${debian[@]}" >/dev/null) || fail "could not download ${debian[*]} from $mirror"
    for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/debian"; done
}

fetch_wheels() {
    echo "$wheels" >"$work/wheels.txt"
    python3 -m venv "$work/venv" || fail "python3 -m venv failed: on Debian, install python3-venv"
    "$work/venv/bin/pip" install -q --no-deps --require-hashes --only-binary :all: --target "$work/wheels" \
        --platform manylinux2014_x86_64 -r "$work/wheels.txt" 2>&1 | grep -v -i yanked >&2 || true
    [ -d "$work/wheels/nvidia/cuda_runtime/include" ] || fail "the header packages could not be installed from the Python index"
}

lay_out() {
    local debian=$work/debian/usr wheels=$work/wheels/nvidia
    mkdir -p "$folder"/{bin,include,lib,nvvm/bin,nvvm/libdevice}
    local tool
    for tool in nvcc cudafe++ ptxas fatbinary nvlink cuobjdump nvdisasm; do
        local found
        found=$(find "$debian" -name "$tool" -type f | head -1)
        [ -n "$found" ] && cp "$found" "$folder/bin/"
    done
    cp "$(find "$debian" -name cicc -type f | head -1)" "$folder/nvvm/bin/"
    cp "$(find "$debian" -name 'libdevice*.bc' -type f | head -1)" "$folder/nvvm/libdevice/"
    find "$debian" \( -name 'libnvvm.so*' -o -name 'libcudart.so*' -o -name 'libcudadevrt.a' -o -name 'libcudart_static.a' \) \
        -exec cp -a {} "$folder/lib/" \;
    ln -sfn lib "$folder/lib64"
    local part
    for part in cuda_runtime cuda_nvcc cuda_cccl; do cp -r "$wheels/$part/include/." "$folder/include/"; done
    cat >"$folder/bin/nvcc.profile" <<'PROFILE'
TOP                 = $(_HERE_)/..
NVVMIR_LIBRARY_DIR  = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH    += $(TOP)/lib:
PATH               += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES           +=  "-I$(TOP)/include" $(_SPACE_)
LIBRARIES          =+ $(_SPACE_) "-L$(TOP)/lib"
PROFILE
    # The wrapper stands in for nvcc: see gpu/nvcc.
    mkdir -p "$folder/wrapped"
    cp "$here/nvcc" "$folder/wrapped/nvcc"
    chmod +x "$folder/wrapped/nvcc"
}

write_environment() {
    cat >"$folder/env.sh" <<ENV
export CUDA_HOME='$folder' CUDA_PATH='$folder' VLASH_NVCC='$folder/bin/nvcc' NVCC='$folder/wrapped/nvcc'
export PATH="$folder/wrapped:\$PATH"
# The lowest capability that is served; newer cards compile candle's kernels from it when they are loaded.
export CUDA_COMPUTE_CAP=80
ENV
}

if [ ! -e "$stamp" ]; then
    work=$(mktemp -d "$folder/.work-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    fetch_debian
    fetch_wheels
    lay_out
    touch "$stamp"
fi
write_environment
# shellcheck disable=SC1091
. "$folder/env.sh"
nvcc --version | grep -q 'release 12.4' || fail "$folder/bin/nvcc does not answer as CUDA 12.4: remove $folder and try again"
echo "CUDA 12.4 in $folder; now: source $folder/env.sh && cargo build --release --features cuda"
