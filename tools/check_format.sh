#!/bin/bash
# Names every place that clang-format would write differently; `make format` writes it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/sources.sh | xargs clang-format --dry-run -Werror
