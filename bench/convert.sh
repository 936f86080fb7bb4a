#!/usr/bin/env bash
# Measures sdtool convert against cp of the same file, in one run.
#
#   bench/convert.sh [FOLDER [TYPE...]]
#
# FOLDER (default: a new one under $TMPDIR, removed at the end) needs about 7 GB.
# The model, 2 GB of FLUX in BF16, is made there once and kept if the folder is
# yours. Each line is the best of 3 runs with a warm cache. sdtool flushes its
# output to disk and cp does not, so "cp + sync" is the like of it on a disk; on
# a folder in memory (/dev/shm) both are the same.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
runs="${RUNS:-3}"
if [ $# -gt 0 ]; then
	dir="$1"
	shift
else
	dir="$(mktemp -d)"
	trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir"
types=("$@")
[ ${#types[@]} -gt 0 ] || types=(bf16 f16 f32 q8_0 q4_0 q5_1 q4_K q6_K iq4_xs)

cd "$root"
CGO_ENABLED=0 go build -o "$dir/sdtool" ./cmd/sdtool
model="$dir/flux.safetensors"
[ -f "$model" ] || CGO_ENABLED=0 go run ./bench/mkmodel "$model"
cat "$model" >/dev/null
bytes="$(stat -c %s "$model")"

# best COMMAND...: the least seconds of $runs runs.
best() {
	local least="" start took
	for _ in $(seq "$runs"); do
		rm -f "$dir/out"
		sync "$dir"
		start="$EPOCHREALTIME"
		"$@"
		took="$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')"
		least="$(awk -v a="$took" -v b="${least:-1e9}" 'BEGIN { print a < b ? a : b }')"
	done
	echo "$least"
}

line() { # NAME SECONDS
	awk -v name="$1" -v s="$2" -v cp="$cp" -v synced="$synced" -v n="$bytes" \
		'BEGIN { printf "%-12s %7.2f s  %6.0f MB/s in  %5.2f x cp  %5.2f x cp + sync\n", name, s, n / s / 1e6, s / cp, s / synced }'
}

copy_sync() { cp "$model" "$dir/out" && sync "$dir/out"; }

printf '%s, %s bytes, %s cores\n' "$(basename "$model")" "$bytes" "$(nproc)"
cp="$(best cp "$model" "$dir/out")"
synced="$(best copy_sync)"
line cp "$cp"
line "cp + sync" "$synced"
for type in "${types[@]}"; do
	seconds="$(best "$dir/sdtool" convert --diffusion-model "$model" -o "$dir/out" --format gguf --type "$type" --allow-no-imatrix --quiet --progress none)"
	line "$type" "$seconds"
done
rm -f "$dir/out"
