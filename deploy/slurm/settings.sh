# Where the scripts beside this file find and leave things. `$home` is the home directory of the job's user, `$SLURM_JOB_ID` the job.
program=/usr/local/bin/tailrace

# Root's own: each job's configuration, and which process its collector is. Below it, a directory of sockets that is the user's.
run_root=/run/tailrace-jobs

# Each job's table and log, which are the user's, until they are copied out.
kept_root=/var/lib/tailrace-jobs

# Most that the table of a job may take; the oldest days of a larger table are deleted. Its spool may take as much again, up to 2 GB.
retention_size="20 GB"

# The parent of the jobs' control groups, relative to the mount of cgroup v2. All processes that a job's user starts from
# the collector are in the job's group, and the epilog ends them.
cgroup_name=tailrace-jobs

# Where the epilog copies the table and the log to, as the user: $copy_to/JOB/NODE. Empty: they stay on the node.
copy_to=$home/tailrace-jobs

# Reading the tracers' files to their end is given up after so many seconds.
read_seconds=300

# A copy that takes longer is given up, and the table stays on the node.
copy_seconds=600

# What could not be copied, or is not to be copied, is deleted after so many days.
keep_days=7
