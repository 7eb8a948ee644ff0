#!/bin/sh
# Prolog (as root, on each node, before the job): start the job's collector as the job's user. Never fails, and ends within 15 s.
here=$(dirname "$(readlink -f "$0")")
. "$here/job.sh"
until=$(($(date +%s) + 9))

# A job that is queued anew keeps its number, and a node may have been cut off before the epilog.
[ ! -e "$run" ] || timeout -k 1 4 "$here/epilog.sh" || {
  say "no collector: files or processes of an earlier run of this job remain until the epilog"
  exit 0
}

make_directories() {
  make_root_only "$run_root" && make_root_only "$kept_root" && mkdir "$run" || return 1
  # What an earlier job of the same number left, of another user, is not this user's.
  [ ! -e "$kept" ] || [ "$(stat -c %U "$kept")" = "$SLURM_JOB_USER" ] || return 1
  install -d -m 0700 -o "$SLURM_JOB_USER" "$run/sockets" "$kept" || return 1
  # The tracers' files: what is in a directory of the user's, the user makes. DFTracer makes no directory itself.
  by_user 1 mkdir -p "$kept/traces/ovni" "$kept/traces/dftracer"
}

write_configuration() {
  cat >"$run/tailrace.toml" <<TOML
[store]
path = "$kept/store"
retention_size = "$retention_size"

[spool]
max_size = "2 GB"

[admin]
listen = "127.0.0.1:0"
tokens = "$kept/tokens"

[job]
id = "$SLURM_JOB_ID"
node = "$node"

[sources.heph]
type = "unix"
format = "heph"
listen = "$run/sockets/heph.sock"

[sources.jets]
type = "unix"
format = "jets"
listen = "$run/sockets/jets.sock"

[sources.ovni]
type = "tail"
format = "ovni"
paths = ["$kept/traces/ovni"]

[sources.dftracer]
type = "tail"
format = "dftracer"
paths = ["$kept/traces/dftracer"]
TOML
}

make_directories && write_configuration || {
  say "no collector: cannot make $run and $kept as directories that only root, or only the user, can change"
  exit 0
}
# Loopback is open to every user of the node: its figures are for those who can read this file.
by_user 1 sh -c 'umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d " \n" >"$1"' sh "$kept/tokens"
# From here on, this process and what it starts are in the job's control group.
make_cgroup && echo $$ >"$cgroup/cgroup.procs"
# The log is opened by the user: it lies in a directory of the user's.
$as_user setsid sh -c 'umask 077 && exec "$1" serve --config "$2" >"$3" 2>&1' \
  sh "$program" "$run/tailrace.toml" "$kept/log" </dev/null >/dev/null 2>&1 &
pid=$!
started=$(identity $pid) || started=none
printf '%s\n%s\n' "$pid" "$started" >"$run/process"

until by_user 1 test -S "$run/sockets/heph.sock"; do
  if [ "$(date +%s)" -ge $until ] || [ "$(identity $pid)" != "$started" ]; then
    say "the collector did not start: $(by_user 1 tail -n 1 "$kept/log")"
    exit 0
  fi
  sleep 0.1
done
exit 0
