# Shared by prolog.sh and epilog.sh, which run as root and read this file first.
#
# Root opens no file in a directory of the user's, and signals no process: `$as_user` does. So a link that the user
# plants leads where the user may go anyhow, and a signal reaches only what the user may end anyhow.
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
