#!/bin/sh
# TaskProlog (as the user, before each task): what it prints goes into the task's environment.
home=$HOME
. "$(dirname "$(readlink -f "$0")")/settings.sh"
socket=$run_root/$SLURM_JOB_ID/sockets/heph.sock
if [ -S "$socket" ]; then
  echo "export TAILRACE_ADDRESS=unix://$socket"
fi
