#!/usr/bin/env bash
# tools/bench/gpu_job.sh FOLDER [TARGET...]: what a GPU machine without this tree needs, in one folder.
#
# Builds quire, the CUDA benches and parity_tests without the CPU backend (so without LLVM) in build/gpu, and puts into FOLDER:
# the programs in bin/, the shared libraries that they need in lib/ (but the system's own), the parity tests' models in testdata/,
# and the scripts of tools/bench. Further TARGETs are built and put there, too. Then, on that machine:
#
#   FOLDER/cuda.py --bin FOLDER/bin
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: tools/bench/gpu_job.sh FOLDER [TARGET...]}
shift
cmake --preset release -B build/gpu -DQUIRE_CPU_BACKEND=OFF > build-gpu.log 2>&1 || { tail -20 build-gpu.log; exit 1; }
rm build-gpu.log
mapfile -t benches < <(grep -o 'bench_cuda_[a-z_]*' tools/bench/CMakeLists.txt | sort -u)
targets=(quire parity_tests "${benches[@]}" "$@")
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
mkdir -p "$folder/testdata/parity"
cp -r tests/parity/fixtures "$folder/testdata/parity/"
du -sh "$folder"
