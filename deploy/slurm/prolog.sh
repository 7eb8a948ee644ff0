#!/bin/sh
# Prolog (as root, on each node, before the job): start the job's collector. Never fails.
set -u
program=${TAILRACE_PROGRAM:-tailrace}
run=${TAILRACE_RUN:-/run/tailrace/jobs}/$SLURM_JOB_ID
store=${TAILRACE_JOBS:-/var/lib/tailrace/jobs}/$SLURM_JOB_ID

say() { logger -t tailrace "job $SLURM_JOB_ID: $1" 2>/dev/null || echo "tailrace: job $SLURM_JOB_ID: $1" >&2; }

mkdir -p "${run%/*}" "${store%/*}" &&
  install -d -m 0700 -o "$SLURM_JOB_USER" "$run" "$store" &&
  cat >"$run/tailrace.toml" <<END || { say "no directories: no collector"; exit 0; }
[store]
path = "$store"

[admin]
listen = "127.0.0.1:0"

[sources.heph]
type = "unix"
format = "heph"
listen = "$run/heph.sock"

[sources.jets]
type = "unix"
format = "jets"
listen = "$run/jets.sock"
END
chmod 0644 "$run/tailrace.toml"

setsid runuser -u "$SLURM_JOB_USER" -- \
  "$program" serve --config "$run/tailrace.toml" </dev/null >"$run/log" 2>&1 &
echo $! >"$run/pid"

waited=0
while ! [ -S "$run/heph.sock" ]; do
  if [ $waited -ge 100 ] || ! kill -0 "$(cat "$run/pid")" 2>/dev/null; then
    say "the collector did not start: $(tail -n 1 "$run/log")"
    exit 0
  fi
  sleep 0.1
  waited=$((waited + 1))
done
exit 0
