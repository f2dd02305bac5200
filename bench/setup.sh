#!/usr/bin/env bash
# Makes the environment in which compare_engines.py runs the other engines:
# .bench-venv in the project's folder, or the folder in SPECWIRE_BENCH_VENV.
# llama.cpp is built from source for this processor, which takes minutes.
# Specwire itself needs none of this.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${SPECWIRE_BENCH_VENV:-.bench-venv}
log=.cache/bench-setup.log

say() { echo "bench/setup.sh: $*"; }
die() {
  trap - ERR
  echo "bench/setup.sh: $*" >&2
  exit 1
}
trap 'die "line $LINENO failed: $BASH_COMMAND"' ERR

if (($# > 0)); then
  echo "usage: bench/setup.sh    (takes no arguments)" >&2
  [[ $1 == -h || $1 == --help ]] && exit 0
  exit 2
fi

mkdir -p .cache
if [[ ! -x $venv/bin/pip ]]; then
  say "making $venv"
  python3 -m venv --clear "$venv" > "$log" 2>&1 ||
    die "python3 -m venv failed (apt install python3-venv?); see $PWD/$log"
fi
say "installing what bench/requirements.txt names; llama.cpp takes minutes"
# A wheel from an index may be built for another processor; -march=native is
# what a user who cares for speed runs.
"$venv/bin/pip" install --disable-pip-version-check \
  --no-binary llama-cpp-python -r bench/requirements.txt \
  > "$log" 2>&1 < /dev/null || die "pip failed; see $PWD/$log"
"$venv/bin/python" -c 'import llama_cpp, openvino_genai' > "$log" 2>&1 ||
  die "the packages do not load; see $PWD/$log"
say "done: $venv"
