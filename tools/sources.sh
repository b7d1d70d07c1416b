#!/bin/bash
# Lists the project's C++ files, one a line, from the root: those git knows or would add; in a tree
# without git, all.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -e .git ]] && git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
  git ls-files -co --exclude-standard -- '*.h' '*.cpp'
else
  find . \( -name 'build*' -o -name out \) -prune -o \( -name '*.h' -o -name '*.cpp' \) -print |
    sed 's|^\./||'
fi | sort -u | while read -r file; do
  [[ ! -f "$file" ]] || echo "$file"  # git still lists one that was deleted
done
