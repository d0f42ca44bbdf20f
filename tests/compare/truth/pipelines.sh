#!/bin/sh
# score under the engines that run many processes: the same bytes as one process gives. An engine that is
# not here is skipped. PYTHON names a Python with pyspark, lm-eval and torch.
#
#     sh tests/compare/truth/pipelines.sh BUILD
set -u
cd "$(dirname "$0")/../../.." || exit 1
build=${1:-build}
python=${PYTHON:-python3}
score=$build/score
model=$build/tiny-stories.attn
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export OMP_WAIT_POLICY=passive
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "passed: $*"; }
fails() { failed=$((failed + 1)); echo "FAILED: $*"; }
skip() { skipped=$((skipped + 1)); echo "skipped: $*"; }

# same NAME FILE: the answers of one process?
same() { if cmp "$2" "$tmp/answers"; then pass "$1"; else fails "$1"; fi; }

awk 'BEGIN {
    srand(1)
    n = split(" the dog cat said Lily red ran big because happy", words, " ")
    for (i = 1; i <= 600; i++) {
        text = "Once upon a time"
        for (k = int(rand() * 40); k > 0; k--) text = text " " words[1 + int(rand() * n)]
        task = i % 7 == 0 ? ", \"task\": \"generate\", \"max_tokens\": 30, \"temperature\": 1, \"seed\": " i : ""
        task = i % 7 == 3 ? ", \"task\": \"embed\", \"pooling\": \"mean\"" : task
        printf "{\"id\": %d, \"text\": \"%s\"%s}\n", i, text, task
    }
}' >"$tmp/lines"
$score $model "$tmp/lines" -q >"$tmp/answers" || exit 1

# GNU parallel: blocks of lines for each process, the answers in order.
if parallel --version 2>/dev/null | grep -q '^GNU parallel'; then
    parallel --will-cite -k --pipe --block 10k -j 2 "$score $model -q -t 1" <"$tmp/lines" >"$tmp/piped"
    same "GNU parallel --pipe" "$tmp/piped"
    parallel --will-cite -k --pipepart -a "$tmp/lines" --block -1 -j 2 "$score $model -q -t 1" >"$tmp/piped"
    same "GNU parallel --pipepart" "$tmp/piped"
else
    skip "GNU parallel: it is not installed"
fi

# A Slurm array: sbatch's variables, tasks in any order, one of which is killed and queued again.
sbatch() # TASKS SCRIPT
{
    for i in $(seq "$1" -1 1); do
        SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=$1 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=$1 sh "$2" &
        if [ "$i" = 2 ]; then
            sleep 0.2
            kill -9 $! 2>/dev/null
            wait $! 2>/dev/null
            SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=$1 SLURM_RESTART_COUNT=1 sh "$2" &
        fi
    done
    wait
}
cat >"$tmp/job" <<END
exec $score $model $tmp/lines -q -t 1 -o $tmp/part\$SLURM_ARRAY_TASK_ID --resume \
    --shard \$SLURM_ARRAY_TASK_ID/\$SLURM_ARRAY_TASK_COUNT
END
sbatch 4 "$tmp/job"
paste -d '\n' "$tmp/part1" "$tmp/part2" "$tmp/part3" "$tmp/part4" | grep . >"$tmp/joined"
same "a Slurm array of 4, one killed and queued again" "$tmp/joined"

# Spark: executors of its own, one killed.
if ! java -version >/dev/null 2>&1; then
    skip "Spark: there is no Java"
elif ! $python -c 'import pyspark' 2>/dev/null; then
    skip "Spark: $python has no pyspark"
elif timeout 300 $python tests/compare/truth/spark_score.py $score $model "$tmp/lines" "$tmp/answers" 2>"$tmp/spark"; then
    pass "Spark"
else
    tail -n 5 "$tmp/spark"
    fails "Spark"
fi

# lm-evaluation-harness: its own model beside the adapter's.
if ! $python -c 'import lm_eval, torch, transformers' 2>/dev/null; then
    skip "lm-evaluation-harness: $python has no lm_eval, torch or transformers"
elif $python tests/compare/truth/compare_lm_eval.py $score $model examples/tiny-stories 2>"$tmp/lm_eval"; then
    pass "lm-evaluation-harness"
else
    tail -n 5 "$tmp/lm_eval"
    fails "lm-evaluation-harness"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
