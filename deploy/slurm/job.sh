# Shared by prolog.sh and epilog.sh, which run as root and read this file first.
#
# Root opens no file in a directory of the user's, and signals no process: `$as_user` does. So a link that the user
# plants leads where the user may go anyhow, and a signal reaches only what the user may end anyhow. A pipe that the user
# plants keeps root no longer than `by_user` waits.
set -u
umask 022
cd / || exit 0
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
home=$(getent passwd "$SLURM_JOB_USER" | cut -d: -f6)
. "$here/settings.sh"
run=$run_root/$SLURM_JOB_ID
kept=$kept_root/$SLURM_JOB_ID
node=${SLURMD_NODENAME:-$(uname -n)}
as_user="setpriv --reuid=$SLURM_JOB_USER --regid=$(id -g "$SLURM_JOB_USER") --init-groups --reset-env --no-new-privs --"

cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
cgroup=${cgroup:+$cgroup/${cgroup_name:-tailrace-jobs}/$SLURM_JOB_ID}

# Make the job's control group, which only root can change. Without cgroup v2 there is none.
make_cgroup() { [ -n "$cgroup" ] && mkdir -p "$cgroup" 2>/dev/null; }

# Run a command as the job's user, in the job's control group, for so many seconds at most.
by_user() {
  seconds=$1
  shift
  timeout -k 1 "$seconds" sh -c '[ ! -e "$0" ] || echo $$ >"$0"; exec "$@"' "$cgroup/cgroup.procs" $as_user "$@"
}

# Kill all processes in the job's control group, also those that have left their session or parent.
kill_rest() {
  [ -e "$cgroup/cgroup.procs" ] || return 0
  [ -e "$cgroup/cgroup.kill" ] && echo 1 >"$cgroup/cgroup.kill" && return 0
  for each in $(cat "$cgroup/cgroup.procs"); do $as_user kill -KILL "$each"; done # before Linux 5.14
}

say() { logger -t tailrace "job $SLURM_JOB_ID: $1" 2>/dev/null || echo "tailrace: job $SLURM_JOB_ID: $1" >&2; }

# Make a directory if it is missing. Fail if anybody but root can change it.
make_root_only() {
  mkdir -p "$1" && [ -z "$(find -H "$1" -maxdepth 0 \( ! -type d -o ! -user root -o -perm /022 \))" ]
}

# Print the start time and the control groups of the process with a pid: no later process with the same pid has the same.
# Fail if there is no such process, or only the remains of one.
identity() (
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || exit 1
  # A process chooses its own name, which may hold spaces and brackets: the last bracket ends it.
  set -f
  set -- "$1" ${stat##*) }
  [ "$2" != Z ] && echo ${21} $(tr '\n' ' ' <"/proc/$1/cgroup")
)
