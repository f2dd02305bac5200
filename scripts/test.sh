#!/usr/bin/env bash
# Sets up, builds and runs all tests; prints ctest's summary. Under 30 minutes
# on two cores, most of it the first build.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat << 'USAGE'
usage: scripts/test.sh [--quick | --full] [--retry]
  --quick   leaves out the tests labelled slow (the real model's)
  --full    more prompts and repetitions in the slow tests
  --retry   runs a failed test once more; ctest tells of both runs
USAGE
}
fail() {
  trap - ERR
  echo "test.sh: $*" >&2
  exit 1
}
trap 'fail "line $LINENO failed: $BASH_COMMAND"' ERR

selection=()
repeat=()
for argument in "$@"; do
  case $argument in
    --quick) selection=(--label-exclude slow) ;;
    --full) export SPECWIRE_TEST_FULL=1 ;;
    --retry) repeat=(--repeat until-pass:2) ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "test.sh: unknown argument $argument" >&2
      usage >&2
      exit 2
      ;;
  esac
done

# Prints "PID NAME" of each process that runs a program of this build.
leftovers() {
  local link target
  for link in /proc/[0-9]*/exe; do
    target=$(readlink "$link" 2> /dev/null) || continue
    if [[ ${target% (deleted)} == "$PWD"/build/release/* ]]; then
      echo "$(basename "$(dirname "$link")") $(basename "$target")"
    fi
  done
}

scripts/setup.sh --tests

if command -v clang-format-14 > /dev/null &&
  git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
  git ls-files -z '*.h' '*.cc' | xargs -0 -r clang-format-14 --dry-run -Werror ||
    fail "run clang-format-14 -i on the files above"
  echo "test.sh: the format is right"
fi

cmake --preset release
cmake --build --preset release
before=$(leftovers)

status=0
ctest --preset release -j "$(nproc)" "${selection[@]}" "${repeat[@]}" || status=$?

left=$(comm -13 <(sort <<< "$before") <(leftovers | sort))
if [[ -n $left ]]; then
  # They are the tests' own children: nobody else will end them.
  while read -r pid _; do
    kill -KILL "$pid" 2> /dev/null || true
  done <<< "$left"
  fail "the tests left processes behind: ${left//$'\n'/, }"
fi
((status == 0)) || fail "tests failed"
