#!/bin/sh
# Epilog (as root, on each node, after the job): end its collector in order, copy what it stored to the user. Never fails.
here=$(dirname "$(readlink -f "$0")")
. "$here/job.sh"

runs() { [ -n "$started" ] && [ "$(identity "$pid")" = "$started" ]; }

signal_and_wait() { # signal, tenths of a second
  waited=0
  runs && $as_user sh -c 'kill "-$1" "$2"' sh "$1" "$pid"
  while runs; do
    [ $waited -lt "$2" ] || return 1
    sleep 0.1
    waited=$((waited + 1))
  done
}

# Copy under another name first: what is called by its node is there as a whole. Print where.
copy_out() {
  by_user "$copy_seconds" sh -c '
    umask 077
    mkdir -p "$2" && part=$(mktemp -d "$2/.partial.XXXXXX") || exit 1
    to=$2/$3
    tries=1
    while [ -e "$to" ]; do tries=$((tries + 1)); to=$2/$3.$tries; done
    cp -R "$1/." "$part/" && rm -f "$part/tokens" && sync -f "$part" && mv -T "$part" "$to" && echo "$to" && exit 0
    rm -rf "$part"
    exit 1
  ' sh "$kept" "$copy_to/$SLURM_JOB_ID" "$node"
}

# `rm` follows no link, so what is deleted is within these directories.
delete_expired() {
  find "$kept_root" -mindepth 1 -maxdepth 1 -type d -ctime "+$keep_days" | while read -r old; do
    [ -e "$run_root/${old##*/}" ] || rm -rf --one-file-system "$old"
  done
}

[ -d "$run" ] || exit 0
make_root_only "$run" || { say "not root's own, left alone: $run"; exit 0; }
pid='' started=''
[ -f "$run/process" ] && { read -r pid && read -r started; } <"$run/process"
# What is not in the table when it has to be killed stays in the spool beside the table.
signal_and_wait TERM 900 || signal_and_wait KILL 100 || {
  say "the collector, process $pid, does not end: $kept is left as it is"
  exit 0
}
kill_rest
make_cgroup
# The job is over: files that its tracers wrote are read to their end, and nobody goes on with a session.
[ -f "$run/tailrace.toml" ] && [ -d "$kept/store" ] && {
  by_user "$read_seconds" sh -c 'umask 077 && exec "$1" serve --rest --config "$2" >>"$3" 2>&1' \
    sh "$program" "$run/tailrace.toml" "$kept/log" || say "not all files were read to their end: $(basename "$kept")/log says why"
}
if [ -z "$copy_to" ]; then
  say "left for $keep_days days: $kept"
elif to=$(copy_out); then
  rm -rf --one-file-system "$kept" && say "copied to $to"
else
  say "cannot copy to $copy_to as $SLURM_JOB_USER: left for $keep_days days in $kept"
fi
# This is the last step, so that an interrupted epilog starts from the beginning next time.
rm -rf --one-file-system "$run" || say "cannot delete all of $run"
kill_rest
waited=0
until [ ! -d "$cgroup" ] || rmdir "$cgroup" 2>/dev/null || [ $waited -ge 50 ]; do
  sleep 0.1
  waited=$((waited + 1))
done
delete_expired
exit 0
