#!/usr/bin/env bash
# Prints the folder of the libtorch to build with (it holds include/ and lib/),
# or fails. In this order: Torch_DIR from the environment, the project's own
# .venv, the torch package of python3. Nothing is imported: a CUDA wheel
# installed without its CUDA libraries cannot be.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# usable DIR: true if DIR is a libtorch >= 2.6 with the C++11 ABI.
usable() {
  local root=$1 config=$1/share/cmake/Torch/TorchConfig.cmake header major minor
  header=$root/include/torch/headeronly/version.h
  [[ -f $header ]] || header=$root/include/torch/csrc/api/include/torch/version.h
  [[ -f $header && -e $root/lib/libtorch_cpu.so ]] || return 1
  major=$(sed -n 's/^#define TORCH_VERSION_MAJOR \([0-9]*\).*/\1/p' "$header")
  minor=$(sed -n 's/^#define TORCH_VERSION_MINOR \([0-9]*\).*/\1/p' "$header")
  [[ -n $major && -n $minor ]] || return 1
  ((major > 2 || (major == 2 && minor >= 6))) || return 1
  ! grep -qs 'GLIBCXX_USE_CXX11_ABI=0' "$config"
}

candidates=()
if [[ -n ${Torch_DIR:-} ]]; then
  candidates+=("$Torch_DIR" "$Torch_DIR/../../..")
else
  candidates+=("$project"/.venv/lib/python3*/site-packages/torch)
  found=$(python3 -c '
import importlib.util as u
s = u.find_spec("torch")
print(s.submodule_search_locations[0] if s and s.submodule_search_locations else "")' 2>/dev/null || true)
  [[ -n $found ]] && candidates+=("$found")
fi
for root in "${candidates[@]}"; do
  if usable "$root"; then
    cd "$root" && pwd
    exit 0
  fi
done
echo "torch_root.sh: no libtorch >= 2.6 with the C++11 ABI in: ${candidates[*]}" >&2
exit 1
