# What the scripts beside this file share. They set $tmp, a directory, and print "$passed passed, ..." at their end.
passed=0 failed=0 skipped=0

check() # NAME COMMAND...: what it prints is shown if it fails
{
    name=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: $*"
        head -20 "$tmp/log"
    fi
}
skip() # REASON
{
    skipped=$((skipped + 1))
    echo "skipped: $1"
}
