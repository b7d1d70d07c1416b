#!/bin/bash
# Builds the LibTorch-free part and its tests under a sanitizer, and runs them:
#
#     tools/sanitize.sh asan|tsan [CTEST_ARGS...]
#
# asan is address and undefined, but for the latter's null, alignment and vptr: they double the time of the
# build, and a null pointer traps anyway. The browser's tests are left out: they show nothing here.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset="$1"
shift
# gcc 12's thread sanitizer cannot start where the kernel spreads addresses too far.
if [[ "$preset" == "tsan" && -z "${PIPEWRIGHT_FIXED_ADDRESSES:-}" ]] && setarch -R true 2> /dev/null; then
  PIPEWRIGHT_FIXED_ADDRESSES=yes exec setarch -R "$PWD/tools/sanitize.sh" "$preset" "$@"
fi

mkdir -p "build-$preset"
tools/quietly.sh "build-$preset/configure.log" cmake --preset "$preset"
cmake --build "build-$preset" -j "$(nproc)"
ctest --test-dir "build-$preset" --output-on-failure -j "$(nproc)" -E '^browser\.' "$@"
