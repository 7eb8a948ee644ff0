#!/bin/sh
# TaskProlog (as the user, before each task): what it prints goes into the task's environment.
home=$HOME
. "$(dirname "$(readlink -f "$0")")/settings.sh"
socket=$run_root/$SLURM_JOB_ID/sockets/heph.sock
if [ -S "$socket" ]; then
  echo "export TAILRACE_ADDRESS=unix://$socket"
  # The collector follows what tracers write here. What the user has set stays.
  traces=$kept_root/$SLURM_JOB_ID/traces
  [ -n "${OVNI_TRACEDIR:-}" ] || echo "export OVNI_TRACEDIR=$traces/ovni"
  [ -n "${DFTRACER_LOG_FILE:-}" ] || echo "export DFTRACER_LOG_FILE=$traces/dftracer/trace"
  [ -n "${DFTRACER_TRACE_COMPRESSION:-}" ] || echo "export DFTRACER_TRACE_COMPRESSION=0"
fi
