"""Read a table with a distributed engine, on two nodes of Ray on this host. Runs in the environment of `make engines`.

    reading.py ENGINE TABLE OUTPUT [TABLE OUTPUT …]

Each OUTPUT becomes an Arrow file of all rows, with the process that had each of them as column `pid`. Tables at a
URL are asked with the variables AWS_…. Prints the number of nodes and our own process as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import ray
from pyarrow import ipc
from ray.cluster_utils import Cluster

SECONDS = 400
"""Maximum time (seconds) of this process. It ends by itself: if its parent killed it, Ray's processes would remain."""

NODES = 2
NODE = {
    "num_cpus": 2,
    "object_store_memory": 200 * 2**20,
    # Ray looks for 127.0.0.1 at the host's outer address, where it does not listen in this case.
    "node_ip_address": "127.0.0.2",
    "include_dashboard": False,
}


def with_daft(table):
    import daft
    from daft.io import IOConfig, S3Config

    daft.set_runner_ray(noop_if_initialized=True)
    # Make a task for each file, however small it is.
    daft.set_execution_config(scan_tasks_min_size_bytes=1, scan_tasks_max_size_bytes=2)

    @daft.func.batch(return_dtype=daft.DataType.int64())
    def pid(offsets):
        return [os.getpid()] * len(offsets)

    s3 = S3Config(
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL"),
        key_id=os.environ.get("AWS_ACCESS_KEY_ID"),
        access_key=os.environ.get("AWS_SECRET_ACCESS_KEY"),
        region_name=os.environ.get("AWS_REGION"),
        use_ssl=False,
    )
    config = IOConfig(s3=s3) if "://" in table else None
    rows = daft.read_deltalake(table, io_config=config)
    return rows.with_column("pid", pid(rows["offset"])).to_arrow()


def with_ray(table):
    def add_pid(rows):
        return rows.append_column("pid", pa.array([os.getpid()] * rows.num_rows, pa.int64()))

    options = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    rows = ray.data.read_delta(
        table,
        storage_options=options if "://" in table else None,
        ray_remote_args={"scheduling_strategy": "SPREAD"},
    ).map_batches(add_pid, batch_format="pyarrow", batch_size=None)
    return pa.concat_tables(ray.get(rows.to_arrow_refs()))


ENGINES = {"daft": with_daft, "ray": with_ray}


def too_late(*_):
    raise TimeoutError(f"the engine did not answer within {SECONDS} s")


def main():
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(SECONDS)
    read = ENGINES[sys.argv[1]]
    places = iter(sys.argv[2:])
    with tempfile.TemporaryDirectory(prefix="ray-") as directory:
        # Ray writes the cluster's address to a directory below this one, but does not create this one.
        os.environ["RAY_TMPDIR"] = directory
        own = Path(directory, "ray")
        own.mkdir()
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "temp_dir": str(own)})
        try:
            for _ in range(NODES - 1):
                cluster.add_node(**NODE)
            ray.init(address=cluster.address, log_to_driver=False)
            nodes = sum(node["Alive"] for node in ray.nodes())
            for table, output in zip(places, places, strict=True):
                rows = read(table)
                with ipc.new_file(Path(output), rows.schema) as file:
                    file.write_table(rows)
        finally:
            ray.shutdown()
            cluster.shutdown()
    sys.stdout.write(json.dumps({"nodes": nodes, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
