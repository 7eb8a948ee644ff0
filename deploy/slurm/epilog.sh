#!/bin/sh
# Epilog (as root, on each node, after the job): end its collector in order. Never fails.
set -u
run=${TAILRACE_RUN:-/run/tailrace/jobs}/$SLURM_JOB_ID
[ -f "$run/pid" ] || exit 0
pid=$(cat "$run/pid")

# What runuser was asked to run gets its signals from it.
kill -TERM "$pid" 2>/dev/null
waited=0
while kill -0 "$pid" 2>/dev/null; do
  if [ $waited -ge 900 ]; then
    # What is not in the table yet stays in the spool beside it.
    pkill -KILL -P "$pid" 2>/dev/null
    kill -KILL "$pid" 2>/dev/null
    break
  fi
  sleep 0.1
  waited=$((waited + 1))
done
rm -rf "$run"
exit 0
