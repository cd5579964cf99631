#!/usr/bin/env bash
# Line coverage of the GGUF loader by its seeds and, with FOLDER, by what a fuzz run added.
#   tools/fuzz_coverage.sh [FOLDER]
# Needs clang with llvm-profdata and llvm-cov. Fails below 80 % (LOCKSTEP_MIN_COVERAGE changes that). Builds in
# build-coverage. The seeds are those of the fuzz target, so joining split files (paths only) is not measured here;
# model_test covers it.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-coverage
minimum=${LOCKSTEP_MIN_COVERAGE:-80}
tool() { command -v "$1" || command -v "$1-14" || { echo "fuzz_coverage: $1 not found" >&2; exit 1; }; }
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DLS_FUZZ=ON -DLS_TESTS=OFF \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
ninja -j1 -C "$build" gguf_fuzz >/dev/null

# -runs=0 only replays the folders.
LLVM_PROFILE_FILE="$build/gguf.profraw" "$build/tests/fuzz/gguf_fuzz" -runs=0 \
  tests/data/gguf tests/data/gguf/renamed "$@" >"$build/gguf_fuzz.log" 2>&1
"$profdata" merge -sparse "$build/gguf.profraw" -o "$build/gguf.profdata"
sources=(src/model/formats/gguf.cc src/model/formats/gguf_parser.cc src/model/formats/gguf_tensors.cc
  src/model/formats/ggml_types.cc src/model/formats/byte_reader.h src/model/config.cc src/model/inspect.cc)
"$cov" report "$build/tests/fuzz/gguf_fuzz" -instr-profile="$build/gguf.profdata" "${sources[@]}" |
  awk -v minimum="$minimum" '
    /\.(cc|h) / { printf "%-24s %5d lines, %s covered\n", $1, $8, $10 }
    /^TOTAL/ { printf "%-24s %5d lines, %s covered\n", $1, $8, $10; ok = $10 + 0 >= minimum }
    END { if (!ok) { print "below " minimum " %"; exit 1 } }'
