#!/bin/sh
# The small model starts at once. The limits are ten to a hundred times what an idle machine needs. From the
# environment: BUILD, DGEMMA.
. tests/support/shell_test.sh

start=$BUILD/bench_start
pocket=models/pocket/pocket.gguf

check "loaded and the first canvas settled in time" "$start" -m "$pocket" --rounds 3 --max-load 500 --max-canvas 5000
loads_ffmpeg() {
    ldd "$1" | grep libav
}
if [ -n "$DGEMMA" ]; then
    check "FFmpeg waits for a video" [ -z "$(loads_ffmpeg "$DGEMMA")" ]
    check "the program in time" "$start" -m "$pocket" --rounds 3 --program "$DGEMMA" --max-program 5000
    check "a program that does not answer" fails_saying "did not answer" "$start" -m "$pocket" --rounds 1 --program /bin/false
else
    skip "the program" "there is none in this build"
fi
check "too late" fails_saying "FAILED: load to first canvas took more than 1 ms" "$start" -m "$pocket" --rounds 1 --max-canvas 1
check "no model" fails_saying "usage:" "$start"
check "a model that is not there" fails_saying "bench_start: " "$start" -m "$temp/nothing.gguf"
check "no rounds" fails_saying "usage:" "$start" -m "$pocket" --rounds 0
finish
