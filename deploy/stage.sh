#!/usr/bin/env bash
# Puts the built programs, and the libraries that no Debian package brings, into
# a folder: DESTINATION/bin and DESTINATION/lib (for LD_LIBRARY_PATH).
set -Eeuo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if (($# < 1 || $# > 2)) || [[ $1 == -* ]]; then
  echo "usage: deploy/stage.sh DESTINATION [FOLDER OF THE PROGRAMS]" >&2
  exit 2
fi
destination=$1
from=${2:-$root/build/release/bin}
programs=(coordinator verifier_node draft_node specwire)

mkdir -p "$destination/bin" "$destination/lib"
for program in "${programs[@]}"; do
  install -m 0755 "$from/$program" "$destination/bin/"
  libraries=$(ldd "$from/$program")
  if missing=$(grep "not found" <<< "$libraries"); then
    echo "stage.sh: $program lacks libraries: $missing" >&2
    exit 1
  fi
  while read -r library; do
    install -m 0644 "$library" "$destination/lib/"
  done < <(awk '$3 ~ /^\// && $3 !~ /^\/(usr\/)?lib/ { print $3 }' \
    <<< "$libraries")
done
