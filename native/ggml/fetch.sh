#!/bin/sh
# Fetches the pinned prebuilt ggml library next to this script and prints the
# folder it lies in. Integrity hashes are in package-lock.json; install scripts
# of the packages are not run.
set -eu
cd "$(dirname "$0")"
npm ci --ignore-scripts --no-audit --no-fund >&2
for dir in "$PWD"/node_modules/@node-llama-cpp/*/bins/*; do
	[ -d "$dir" ] && echo "$dir"
done
