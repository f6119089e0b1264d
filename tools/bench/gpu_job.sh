#!/usr/bin/env bash
# tools/bench/gpu_job.sh FOLDER [TARGET...]: what a GPU machine without this tree needs, in one folder.
#
# Builds quire and the CUDA benches without the CPU backend (so without LLVM) in build/gpu, and puts into FOLDER: the programs
# in bin/, the shared libraries that they need in lib/ (but the system's own), and the scripts of tools/bench. Further TARGETs
# are built and put there, too. Then, on that machine:
#
#   LD_LIBRARY_PATH=FOLDER/lib FOLDER/cuda.py --bin FOLDER/bin
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: tools/bench/gpu_job.sh FOLDER [TARGET...]}
shift
cmake --preset release -B build/gpu -DQUIRE_CPU_BACKEND=OFF > build-gpu.log 2>&1 || { tail -20 build-gpu.log; exit 1; }
rm build-gpu.log
mapfile -t benches < <(grep -o 'bench_cuda_[a-z_]*' tools/bench/CMakeLists.txt | sort -u)
targets=(quire "${benches[@]}" "$@")
ninja -C build/gpu ${JOBS:+-j$JOBS} "${targets[@]}"
mkdir -p "$folder/bin" "$folder/lib"
for target in "${targets[@]}"; do
  program=$(find build/gpu -type f -executable -name "$target" | head -1)
  cp "$program" "$folder/bin/"
  # glibc and the loader are the machine's; everything else travels.
  ldd "$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | xargs -I{} cp -nL {} "$folder/lib/"
done
strip "$folder"/bin/* 2> /dev/null || true
cp tools/bench/*.py "$folder/"
du -sh "$folder"
