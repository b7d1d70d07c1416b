#!/bin/bash
# Installs what is missing of the Debian packages of some groups of tools/packages.txt:
#
#     tools/setup.sh build libs torch
#
# Says nothing and touches no network where nothing is missing. TORCH=/path leaves the torch group out;
# SETUP=no leaves everything out. On other systems it says what is needed and leaves the rest to CMake.
set -euo pipefail

list="$(dirname "${BASH_SOURCE[0]}")/packages.txt"

say() { echo "setup: $*" >&2; }

# The packages of the groups named, one a line.
packages_of() {
  local group="" word rest wanted=" $* "
  while read -r word rest; do
    case "$word" in
      "" | "#"*) ;;
      "["*"]") group="${word:1:-1}" ;;
      *) [[ "$wanted" != *" $group "* ]] || echo "$word" ;;
    esac
  done < "$list"
}

# Those of "$@" that are not installed, one a line.
missing_of() {
  local package status
  declare -A installed=()
  while read -r package status; do
    [[ "$status" != "installed" ]] || installed[$package]=yes
  done < <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2> /dev/null)
  for package in "$@"; do
    [[ -n "${installed[$package]:-}" ]] || echo "$package"
  done
}

# Where another BLAS is the default already, installing ours does not change that: say so.
say_if_other_blas() {
  local blas
  blas="$(update-alternatives --query "libblas.so.3-$(uname -m)-linux-gnu" 2> /dev/null |
    sed -n 's/^Value: //p')" || return 0  # the alternative is not there
  if [[ "$blas" == *openblas-pthread* ]]; then
    say "this machine's default BLAS is $blas, with which LibTorch's threads slow each other down;"
    say "choose libopenblas0-openmp with: update-alternatives --config libblas.so.3-$(uname -m)-linux-gnu"
  fi
}

[[ "${SETUP:-}" != "no" ]] || exit 0

groups=()
for group in "$@"; do
  if ! grep -qxF "[$group]" "$list"; then
    say "no group '$group' in $list; there are:" $(sed -n 's/^\[\(.*\)\]$/\1/p' "$list")
    exit 2
  fi
  [[ "$group" == "torch" && -n "${TORCH:-}" ]] || groups+=("$group")
done
[[ ${#groups[@]} -gt 0 ]] || exit 0
mapfile -t packages < <(packages_of "${groups[@]}")

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  say "not a Debian system, so nothing is installed; needed are, by Debian's names: ${packages[*]}"
  say "(going on with what there is; a LibTorch elsewhere is named with make TORCH=/path)"
  exit 0
fi

mapfile -t missing < <(missing_of "${packages[@]}")
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ "$(id -u)" != 0 ]]; then
  if ! command -v sudo > /dev/null; then
    say "these packages are missing, and installing them takes root or sudo: ${missing[*]}"
    say "as root: apt-get install --no-install-recommends ${missing[*]}"
    say "(or go on without them: make SETUP=no)"
    exit 1
  fi
  as_root=(sudo)
fi

# One call for all of them: with libopenblas0-openmp among them, apt takes it for the BLAS that LibTorch
# depends on. Recommended packages would bring in the pthread one.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
say "installing ${#missing[@]} missing Debian packages: ${missing[*]}"
"${apt[@]}" update || say "apt-get update failed; trying with the package lists there are"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" > "$log" 2>&1; then
  cat "$log" >&2
  say "apt-get could not install them (above); where this system has no libtorch-dev, name a LibTorch"
  say "with make TORCH=/path; to go on with what there is: make SETUP=no"
  exit 1
fi
[[ " ${groups[*]} " != *" torch "* ]] || say_if_other_blas
