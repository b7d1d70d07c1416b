#!/bin/bash
# Installs a build into a folder of its own, and builds and runs examples/consumer (schedules alone) and
# examples/first (the engine) against that alone:
#
#     tools/check_install.sh BUILD_FOLDER
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="${1:-build}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

expect() {  # expect WORDS COMMAND...
  local words="$1" out
  shift
  out="$("$@")"
  echo "$out"
  if [[ "$out" != *"$words"* ]]; then
    echo "expected '$words' from: $*" >&2
    exit 1
  fi
}

cmake --install "$build" --prefix "$folder/prefix" > /dev/null
expect "pipewright" "$folder/prefix/bin/pipewright" --version
build_example() {  # build_example NAME
  cmake -S "examples/$1" -B "$folder/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$folder/prefix"
  cmake --build "$folder/$1"
}

build_example consumer
# 3 of 11 slots are idle with 4 ranks and 8 micro-batches.
expect "bubble: 27.3 %" "$folder/consumer/consumer"
build_example first
expect "of new points" "$folder/first/first"
