#!/bin/bash
# Builds the LibTorch-free part and its tests under a sanitizer, and runs them:
#
#     tools/sanitize.sh asan|tsan [CTEST_ARGS...]
#
# asan is address and undefined, but for the latter's null, alignment and vptr: they double the time of the
# build, and a null pointer traps anyway. The browser's tests are left out: they show nothing here.
#
# tsan is the folders with threads alone: the others have nothing it could find.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset="$1"
shift
# gcc 12's thread sanitizer cannot start where the kernel spreads addresses too far.
if [[ "$preset" == "tsan" && -z "${PIPEWRIGHT_FIXED_ADDRESSES:-}" ]] && setarch -R true 2> /dev/null; then
  PIPEWRIGHT_FIXED_ADDRESSES=yes exec setarch -R "$PWD/tools/sanitize.sh" "$preset" "$@"
fi

threaded=(base checkpoint input launch)
targets=(all)
tests=(-E '^browser\.')
if [[ "$preset" == "tsan" ]]; then
  targets=("${threaded[@]/%/_tests}")
  tests=(-L "^($(IFS='|' && echo "${threaded[*]}"))\$")
  # The part without LibTorch, as pipewright/CMakeLists.txt has it: a folder that begins to use threads is named.
  folders="$(sed -n 's/^set(core_folders \(.*\))$/\1/p' pipewright/CMakeLists.txt)"
  for folder in ${folders:?no core_folders in pipewright/CMakeLists.txt}; do
    if grep -qrE 'std::(jthread|thread|async|mutex|atomic)\b[^:]' "pipewright/$folder" "tests/$folder" 2> /dev/null &&
      [[ " ${threaded[*]} " != *" $folder "* ]]; then
      echo "sanitize: $folder uses threads; add it to the folders in tools/sanitize.sh" >&2
      exit 1
    fi
  done
fi

mkdir -p "build-$preset"
tools/quietly.sh "build-$preset/configure.log" cmake --preset "$preset"
cmake --build "build-$preset" -j "$(nproc)" --target "${targets[@]}"
ctest --test-dir "build-$preset" --output-on-failure -j "$(nproc)" "${tests[@]}" "$@"
