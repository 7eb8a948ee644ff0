#!/bin/sh
# TaskProlog (as the user, before each task): what it prints goes into the task's environment.
socket=${TAILRACE_RUN:-/run/tailrace/jobs}/$SLURM_JOB_ID/heph.sock
if [ -S "$socket" ]; then
  echo "export TAILRACE_ADDRESS=unix://$socket"
fi
