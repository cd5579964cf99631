#!/usr/bin/env bash
# The packages that Lockstep needs, in one place, and their installation where something is missing.
#
#   tools/packages.sh build         what ./demo needs
#   tools/packages.sh build test    what ./test needs besides
#   tools/packages.sh --list build  only print the names, one a line
#
# Nothing is called but dpkg-query when everything is there. Debian 12 and Ubuntu 24.04 have every name below.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache pkg-config           # compilers and build
  libfmt-dev libspdlog-dev libcli11-dev             # text, log, command line
  nlohmann-json3-dev                                # JSON
  libhwloc-dev                                      # which cores and memory nodes there are
  libgtest-dev                                      # unit tests; the release build compiles them too
  python3 python3-pip python3-venv ca-certificates  # tools/, and the download of the model
)
# Not fatal when absent: ./test skips the steps that need them and says so.
test_packages=(
  clang libclang-rt-dev llvm                        # libFuzzer comes with clang's run-time library; names in traces
  clang-format
  valgrind                                          # counts instructions: bench/instruction_budget.py
)

list_only=0
if [[ "${1:-}" == --list ]]; then list_only=1; shift; fi
required=()
optional=()
for group in "$@"; do
  case "$group" in
    build) required+=("${build_packages[@]}") ;;
    test) optional+=("${test_packages[@]}") ;;
    *) echo "packages.sh: unknown group '$group' (build, test)" >&2; exit 2 ;;
  esac
done
if [[ ${#required[@]} -eq 0 && ${#optional[@]} -eq 0 ]]; then
  echo "usage: tools/packages.sh [--list] build [test]" >&2
  exit 2
fi
if (( list_only )); then
  printf '%s\n' "${required[@]}" "${optional[@]}" | sed '/^$/d'
  exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "packages.sh: this system has no apt. Install by hand what corresponds to:" >&2
  printf '  %s\n' "${required[*]} ${optional[*]}" >&2
  echo "then run the CMake commands of README.md." >&2
  exit 1
fi

installed() { [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

missing() {  # missing NAME...: prints those that are not installed
  local name
  for name in "$@"; do installed "$name" || echo "$name"; done
}

mapfile -t missing_required < <(missing "${required[@]}")
mapfile -t missing_optional < <(missing "${optional[@]}")
if [[ ${#missing_required[@]} -eq 0 && ${#missing_optional[@]} -eq 0 ]]; then
  echo "packages: all $(( ${#required[@]} + ${#optional[@]} )) are installed"
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "packages.sh: these packages are missing, and this user is neither root nor has sudo:" >&2
    printf '  %s\n' "${missing_required[*]} ${missing_optional[*]}" >&2
    echo "Ask an administrator to run: apt-get install ${missing_required[*]} ${missing_optional[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
apt() {  # apt ARGUMENTS...: quiet, but on failure everything that apt said
  if ! ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$log" 2>&1 </dev/null
  then
    cat "$log" >&2
    return 1
  fi
}

echo "packages: installing ${missing_required[*]} ${missing_optional[*]}"
start=$SECONDS
if ! apt update; then
  echo "packages.sh: 'apt-get update' failed (its words are above); going on with the lists that are there" >&2
fi
if [[ ${#missing_required[@]} -gt 0 ]]; then
  if ! apt install --no-install-recommends "${missing_required[@]}"; then
    echo "packages.sh: apt-get could not install: ${missing_required[*]}" >&2
    exit 1
  fi
fi
for name in ${missing_optional[@]+"${missing_optional[@]}"}; do
  if ! apt install --no-install-recommends "$name" 2>/dev/null; then
    # An older or newer release may carry the run-time library under its version alone.
    version="$(clang --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p' | head -1)"
    if [[ "$name" == libclang-rt-dev && -n "$version" ]] &&
       apt install --no-install-recommends "libclang-rt-$version-dev" 2>/dev/null; then
      continue
    fi
    echo "packages.sh: '$name' could not be installed; the tests that need it will be skipped" >&2
  fi
done
echo "packages: done in $(( SECONDS - start )) s"
