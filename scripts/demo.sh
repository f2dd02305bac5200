#!/usr/bin/env bash
# Sets up, builds, starts a real cluster on this machine (coordinator, draft
# node, verifier node), streams an answer with accepted draft tokens set apart,
# compares it with plain decoding, and stops the cluster.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

drafter=hybrid
max_tokens=160
prompt='Write a Python class for a bank account with the methods deposit, withdraw and balance. Then show how to use it.'

usage() {
  cat << 'USAGE'
usage: scripts/demo.sh [--oracle] [--max_tokens N] [PROMPT]
  --oracle        draft with the target's own model: the most that drafts can
                  be accepted, not the most speed
  --max_tokens N  longest answer (default 160)
USAGE
}
fail() {
  trap - ERR
  echo "demo.sh: $*" >&2
  exit 1
}
trap 'fail "line $LINENO failed: $BASH_COMMAND"' ERR

while (($# > 0)); do
  case $1 in
    --oracle) drafter=oracle ;;
    --max_tokens)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
      max_tokens=$2
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      echo "demo.sh: unknown argument $1" >&2
      usage >&2
      exit 2
      ;;
    *) prompt=$1 ;;
  esac
  shift
done

scratch=$(mktemp -d)
up_pid=
# shellcheck disable=SC2329 # called by the trap
clean_up() {
  if [[ -n $up_pid ]]; then
    kill -TERM "$up_pid" 2> /dev/null || true
    wait "$up_pid" 2> /dev/null || true
  fi
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

scripts/setup.sh
echo "demo.sh: building"
{
  cmake --preset release &&
    cmake --build --preset release \
      --target coordinator draft_node verifier_node specwire
} > "$scratch/build.log" 2>&1 || {
  tail -n 30 "$scratch/build.log" >&2
  fail "the build failed"
}
bin=build/release/bin

echo "demo.sh: starting a cluster with drafter $drafter"
"$bin/specwire" up --listen 127.0.0.1:0 --http 127.0.0.1:0 \
  --drafter "$drafter" > "$scratch/up.out" 2> "$scratch/up.log" < /dev/null &
up_pid=$!
until grep -qx READY "$scratch/up.out"; do
  kill -0 "$up_pid" 2> /dev/null || {
    tail -n 20 "$scratch/up.log" >&2
    fail "the cluster did not start"
  }
  sleep 0.1
done
coordinator=$(sed -n 's/^coordinator //p' "$scratch/up.out")
generate=("$bin/specwire" generate --coordinator "$coordinator"
  --temperature 0 --max_tokens "$max_tokens" --chat)
"$bin/specwire" nodes --coordinator "$coordinator"

marks=brackets
explain='[in brackets]'
if [[ -t 1 ]]; then
  marks=color
  explain=$'\033[4;32munderlined\033[0m'
fi
printf '\nprompt: %s\n\nanswer, accepted draft tokens %s:\n\n' "$prompt" "$explain"
"${generate[@]}" --marks "$marks" -- "$prompt" 2>&1

# The stream above has warmed everything up; now the same with and without. A
# salt of its own, lest the answer above be looked up.
"${generate[@]}" --json --cache_salt on -- "$prompt" > "$scratch/speculative.json"
"${generate[@]}" --json --cache_salt off --no_speculation -- "$prompt" \
  > "$scratch/plain.json"
echo
python3 - "$scratch/speculative.json" "$scratch/plain.json" << 'PYTHON'
import json
import sys

speculative, plain = (json.load(open(path)) for path in sys.argv[1:])
stats = speculative["speculative_decoding"]
fast = speculative["timings"]["tokens_per_second"]
slow = plain["timings"]["tokens_per_second"]
print(f"tokens               {len(speculative['token_ids'])}")
print(f"acceptance rate      {100 * stats['draft_acceptance_rate']:.1f} %"
      f" ({stats['num_accepted_draft_tokens']} of"
      f" {stats['num_draft_tokens']} draft tokens)")
print(f"mean accepted length {stats['mean_acceptance_length']:.2f} tokens"
      f" a speculative step")
print(f"speculation on       {fast:.1f} tokens/s,"
      f" {stats['num_passes']} verify passes")
print(f"speculation off      {slow:.1f} tokens/s,"
      f" {plain['speculative_decoding']['num_passes']} verify passes")
if slow > 0:
    print(f"ratio                {fast / slow:.2f}")
if speculative["token_ids"] != plain["token_ids"]:
    sys.exit("the two texts DIFFER: this is a bug")
print("same token ids with and without speculation: yes")
PYTHON
