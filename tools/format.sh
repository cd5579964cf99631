#!/usr/bin/env bash
# clang-format over the project's C++ files.
#
#   tools/format.sh           formats the files changed against the merge base with main (or all, with --all)
#   tools/format.sh --check   changes nothing; lists the files that would change, and fails if there are any (all files)
set -euo pipefail
cd "$(dirname "$0")/.."

all=0 check=0
for argument in "$@"; do
  case "$argument" in
    --all) all=1 ;;
    --check) check=1 all=1 ;;
    *) echo "format.sh: unknown argument '$argument' (--all, --check)" >&2; exit 2 ;;
  esac
done

is_source='\.(h|cc|cu|cuh)$'
if (( all )) || ! base="$(git merge-base HEAD main 2>/dev/null)"; then
  mapfile -t files < <(find src include tests bench examples -type f 2>/dev/null | grep -E "$is_source" | sort)
else
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- | grep -E "$is_source" || true)
fi
if (( ${#files[@]} == 0 )); then echo "format: no C++ file to look at"; exit 0; fi

if (( ! check )); then
  clang-format -i "${files[@]}"
  echo "format: ${#files[@]} files"
  exit 0
fi
mapfile -t bad < <(printf '%s\0' "${files[@]}" |
  xargs -0 -P "$(nproc)" -n 8 clang-format --dry-run 2>&1 |
  sed -nE 's/^([^:]+):[0-9]+:[0-9]+: .*clang-format-violations.*/\1/p' | sort -u)
if (( ${#bad[@]} > 0 )); then
  printf 'not formatted: %s\n' "${bad[@]}"
  echo "format: ${#bad[@]} of ${#files[@]} files differ; 'tools/format.sh --all' changes them"
  exit 1
fi
echo "format: ${#files[@]} files are as clang-format 14 writes them"
