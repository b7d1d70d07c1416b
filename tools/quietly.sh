#!/bin/bash
# Runs a command with its output in a log, and shows the log only where the command fails:
#
#     tools/quietly.sh LOG COMMAND ARGS...
set -uo pipefail

log="$1"
shift
"$@" > "$log" 2>&1
status=$?
[[ $status == 0 ]] || cat "$log" >&2
exit $status
