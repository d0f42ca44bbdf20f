"""score as the pipe command of Spark: two executors, one of which is killed in the middle of the work, and
one score, too; nothing is lost or doubled. tests/compare/truth/pipelines.sh runs it.

    python3 tests/compare/truth/spark_score.py SCORE MODEL LINES ANSWERS
"""
import os
import shlex
import signal
import sys
import threading
import time

from pyspark import SparkConf, SparkContext


def descendants(root):
    """(pid, command line) of all processes below one, from /proc."""
    parents, found = {}, []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name, errors="replace") as stat, \
                    open("/proc/%s/cmdline" % name, errors="replace") as command:
                parents[int(name)] = int(stat.read().rsplit(")", 1)[1].split()[1])
                found.append((int(name), command.read()))
        except OSError:
            continue

    def is_below(pid):
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root
    return [(pid, command) for pid, command in found if is_below(pid)]


def kill_one(what, score, killed):
    """Waits until texts are being scored, then kills the first process whose command line has `what`."""
    while True:
        below = descendants(os.getpid())
        if any(command.startswith(score) for _, command in below):
            time.sleep(0.3)
            for pid, command in below:
                if what in command:
                    try:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(what)
                        return
                    except ProcessLookupError:
                        break
        time.sleep(0.02)


def main():
    score, model, lines, answers = sys.argv[1:]
    score, model = os.path.abspath(score), os.path.abspath(model)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = (SparkConf().setMaster("local-cluster[2,1,600]").setAppName("score")
            .set("spark.ui.enabled", "false").set("spark.executor.memory", "600m")
            .set("spark.task.maxFailures", "8"))
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")
    killed = []
    for what in (score, "CoarseGrainedExecutorBackend"):
        threading.Thread(target=kill_one, args=(what, score, killed), daemon=True).start()
    # without checkCode Spark takes the output of a process that was killed for all there is
    found = context.textFile(lines, 8).pipe(
        "%s %s -q -t 1" % (shlex.quote(score), shlex.quote(model)), checkCode=True).collect()
    with open(answers, encoding="utf-8") as file:
        expected = file.read().splitlines()
    print("%d answers of %d, killed: %s" % (len(found), len(expected), " and ".join(map(os.path.basename, killed))),
          flush=True)
    os._exit(found != expected or len(killed) != 2)  # Spark's own end would wait for the executor that was killed


if __name__ == "__main__":
    main()
