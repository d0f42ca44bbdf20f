#!/bin/sh
# Builds for `make test`. One make at a time tests in a build directory, and a second one is told so. One
# file can take long to compile, so a line appears at least each 8 seconds.
#
#     sh tests/building.sh BUILD PROCESS COMMAND...     PROCESS: the make that will run the tests
lock=$1/testing
process=$2
shift 2
if [ ! -w "${lock%/*}" ]; then
    echo "${lock%/*} is not there, or cannot be written: make BUILD=DIR test takes another directory"
    exit 1
fi
tries=0
until (set -C && echo "$process" >"$lock") 2>/dev/null; do
    other=$(cat "$lock" 2>/dev/null)
    [ "$other" != "$process" ] || break
    if [ "$other" ] && kill -0 "$other" 2>/dev/null; then
        echo "make test runs here already, as process $other. Wait for its end, or test beside it:"
        echo "make test BUILD=build/other. (If process $other is no make: rm $lock)"
        exit 1
    fi
    rm -f "$lock" || exit
    tries=$((tries + 1))
    [ $tries -lt 9 ] || { echo "$lock cannot be written: is the disk full?"; exit 1; }
done
(
    seconds=0
    while sleep 8 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        seconds=$((seconds + 8))
        echo "  still building, $seconds s"
    done
) &
clock=$!
"$@"
status=$?
kill $clock 2>/dev/null
exit $status
