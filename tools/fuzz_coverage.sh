#!/usr/bin/env bash
# Line coverage of the loaders of model files by their seeds and, with FOLDER, by what a fuzz run added.
#   tools/fuzz_coverage.sh [gguf|safetensors [FOLDER]]
# Needs clang with llvm-profdata and llvm-cov. Fails below 80 % (LOCKSTEP_MIN_COVERAGE changes that). Builds in
# build-coverage. The seeds are those of the fuzz targets, so joining split files and shards (paths only) is not measured
# here; model_test covers it.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-coverage
minimum=${LOCKSTEP_MIN_COVERAGE:-80}
tool() { command -v "$1" || command -v "$1-14" || { echo "fuzz_coverage: $1 not found" >&2; exit 1; }; }
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)

formats=src/model/formats
gguf=("$formats"/{gguf,gguf_parser,gguf_tensors,ggml_types}.cc "$formats/byte_reader.h" src/model/{config,inspect}.cc)
safetensors=("$formats"/{safetensors,safetensors_header,safetensors_index,json_events,json_config}.cc
  src/model/inspect_safetensors.cc)
case "${1:-all}" in
  all) loaders=(gguf safetensors) ;;
  gguf | safetensors) loaders=("$1") ;;
  *) echo "fuzz_coverage: unknown loader '$1' (gguf, safetensors)" >&2; exit 2 ;;
esac

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DLS_FUZZ=ON -DLS_TESTS=OFF \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
ninja -j1 -C "$build" "${loaders[@]/%/_fuzz}" >/dev/null

for loader in "${loaders[@]}"; do
  # -runs=0 only replays the folders, and what lies in folders inside them.
  LLVM_PROFILE_FILE="$build/$loader.profraw" "$build/tests/fuzz/${loader}_fuzz" -runs=0 "tests/data/$loader" \
    "${@:2}" >"$build/${loader}_fuzz.log" 2>&1
  "$profdata" merge -sparse "$build/$loader.profraw" -o "$build/$loader.profdata"
  declare -n sources=$loader
  "$cov" report "$build/tests/fuzz/${loader}_fuzz" -instr-profile="$build/$loader.profdata" "${sources[@]}" |
    awk -v minimum="$minimum" '
      /\.(cc|h) / { printf "%-24s %5d lines, %s covered\n", $1, $8, $10 }
      /^TOTAL/ { printf "%-24s %5d lines, %s covered\n", $1, $8, $10; ok = $10 + 0 >= minimum }
      END { if (!ok) { print "below " minimum " %"; exit 1 } }'
done
