#!/bin/bash
# Fuzzes the readers of tests/fuzz with libFuzzer:
#
#     tools/fuzz.sh build
#     tools/fuzz.sh run [SECONDS_EACH [READER...]]     default: 20 s each of all of them
#
# What it learns stays in build-fuzz/corpus/, what breaks a reader in build-fuzz/crashes/. Such an input goes
# to tests/fuzz/regressions/READER/ with the fix: every build replays it from then on.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readers=(text csv json safetensors checkpoint config npy criteo wordpiece)

build() {
  mkdir -p build-fuzz
  tools/quietly.sh build-fuzz/configure.log cmake --preset fuzz
  cmake --build build-fuzz -j "$(nproc)" --target "${readers[@]/#/fuzz_}"
}

run_one() {
  local reader="$1" seconds="$2" log="build-fuzz/$1.log" folders=("tests/fuzz/corpus/$1")
  [[ ! -d "tests/fuzz/regressions/$reader" ]] || folders+=("tests/fuzz/regressions/$reader")
  mkdir -p "build-fuzz/corpus/$reader" build-fuzz/crashes
  if ! tools/quietly.sh "$log" "build-fuzz/tests/fuzz/fuzz_$reader" -max_total_time="$seconds" \
    -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -dict=tests/fuzz/tokens.dict \
    -artifact_prefix="build-fuzz/crashes/$reader-" "build-fuzz/corpus/$reader" "${folders[@]}"; then
    echo "the $reader reader broke (above); the input is in build-fuzz/crashes" >&2
    return 1
  fi
  echo "$reader: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, all as promised"
}

case "${1:-}" in
  build) build ;;
  run)
    seconds="${2:-20}"
    shift $(($# < 2 ? $# : 2))
    [[ $# == 0 ]] || readers=("$@")
    for reader in "${readers[@]}"; do run_one "$reader" "$seconds"; done
    ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
