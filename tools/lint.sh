#!/bin/bash
# clang-tidy over every C++ file that a build compiles, a core each; what it finds is an error:
#
#     tools/lint.sh [BUILD_FOLDER] [FILE...]
#
# A file that was clean is not looked at again until it, a header, or the rules change: BUILD_FOLDER/lint
# remembers it by its contents.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="${1:-build}"
shift || true
commands="$build/compile_commands.json"
if [[ ! -f "$commands" ]]; then
  echo "lint: no $commands; run make build first" >&2
  exit 1
fi

files=("$@")
if [[ ${#files[@]} == 0 ]]; then
  while read -r file; do
    ! grep -qF "\"file\": \"$PWD/$file\"" "$commands" || files+=("$file")
  done < <(tools/sources.sh | grep '\.cpp$')
fi

# What every file's result depends on.
shared="$( (clang-tidy --version && cat .clang-tidy && tools/sources.sh | grep '\.h$' | xargs cat) | sha256sum)"
mkdir -p "$build/lint"
# clang cannot read a header that g++ precompiled.
sed -E 's/ -Winvalid-pch//; s/ -include [^ ]*cmake_pch\.hxx//' "$commands" > "$build/lint/compile_commands.json"

tidy() {  # tidy BUILD SHARED FILE
  local clean
  clean="$1/lint/$( (echo "$2 $3" && cat "$3") | sha256sum | cut -c 1-32)"
  [[ ! -e "$clean" ]] || return 0
  # The counts of what it suppressed in other people's headers are of no use to anyone.
  clang-tidy --quiet -p "$1/lint" "$3" 2> >(grep -v 'warnings\? generated' >&2) && touch "$clean"
}
export -f tidy
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} bash -c 'tidy "$@"' - "$build" "$shared" {}
echo "clang-tidy: ${#files[@]} files are clean"
