# Common functions of the scripts. Source it with `program` set to the caller's name; it changes to
# the root folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

say() { printf '%s: %s\n' "$program" "$*"; }
die() {
  printf '%s: %s\n' "$program" "$*" >&2
  exit 1
}

# step LOG WHAT COMMAND...: runs a command quietly; on failure prints the end of its output and one
# line.
step() {
  local log=$1 what=$2 begin=$SECONDS
  shift 2
  mkdir -p "$(dirname "$log")"
  if ! "$@" > "$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "$what failed: the end of $log is above"
  fi
  say "$what: $((SECONDS - begin)) s"
}

# in_background NAME WHAT COMMAND...: starts a command. finish_background NAME waits for it, prints
# its output, and exits if it failed.
declare -A background_pid=() background_what=()
in_background() {
  local name=$1
  background_what[$name]=$2
  shift 2
  mkdir -p build/log
  "$@" > "build/log/$name.log" 2>&1 &
  background_pid[$name]=$!
}
finish_background() {
  [[ -n ${background_pid[$1]-} ]] || return 0
  if ! wait "${background_pid[$1]}"; then
    tail -n 40 "build/log/$1.log" >&2
    die "${background_what[$1]} failed: the end of build/log/$1.log is above"
  fi
  cat "build/log/$1.log"
  unset "background_pid[$1]"
}

build_packages=(ca-certificates cmake cppzmq-dev g++ libarchive-dev libbz2-dev libcairo2-dev
  libcereal-dev libcli11-dev libdnnl-dev libfmt-dev libgif-dev libjpeg-dev libjs-chart.js
  liblz4-dev liblzma-dev libpng-dev libsodium-dev libspdlog-dev libtomlplusplus-dev libzmq3-dev
  libzstd-dev ninja-build nlohmann-json3-dev pkg-config zlib1g-dev)
test_packages=(clang-format codespell fonts-dejavu-core git libbenchmark-dev libgmock-dev
  libgtest-dev lld python3 python3-dev python3-venv)
# Packages that only running tests need.
run_packages=(chromium dpkg-dev file gcc-arm-none-eabi iproute2 libnewlib-arm-none-eabi openmpi-bin
  qemu-system-arm slurm-client slurmctld slurmd)

# Installs the named Debian packages that are missing.
need_packages() {
  command -v dpkg-query > /dev/null || {
    say "not a Debian system: using the installed libraries (CONTRIBUTING.md lists them)"
    return
  }
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' \
      || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo > /dev/null \
      || die "missing packages, and no root or sudo to install them: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  step build/log/apt-update.log "apt-get update" "${as_root[@]}" apt-get update -q
  step build/log/apt-install.log "apt-get install" "${as_root[@]}" env \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}
