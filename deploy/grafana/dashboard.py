"""The dashboard, as code: `python deploy/grafana/dashboard.py > deploy/grafana/dashboards/tailrace.json`.

A panel's description ends with what `tailrace.metrics.contract` says of each metric that it shows. A test compares
code and file, and asks a real Prometheus every expression that is in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

from tailrace.metrics.contract import METRICS
from tailrace.metrics.observed import OBSERVED

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="$datasource")
OF_SOURCE = 'instance=~"$instance",source=~"$source"'
OF_INSTANCE = 'instance=~"$instance"'
STAT_WIDTH, PANEL_WIDTH = 4, 12
STAT_HEIGHT, PANEL_HEIGHT = 4, 8


class Line(NamedTuple):
    """An expression and what its series are called; S and I stand for the chosen sources and instances."""

    expression: str
    legend: str = ""

    @property
    def promql(self) -> str:
        return self.expression.replace("{S", f"{{{OF_SOURCE}").replace("{I", f"{{{OF_INSTANCE}")


_HELP = {metric.name: metric.help for metric in (*METRICS, *OBSERVED)}


class Graph(NamedTuple):
    title: str
    about: str
    unit: str
    lines: tuple[Line, ...]
    stacked: bool = False

    @property
    def description(self) -> str:
        """Return the panel's subject, and the meaning of its metrics in the collector's own words."""
        each = (re.findall(r"\btailrace_\w+", line.expression) for line in self.lines)
        names = (re.sub("_(total|bucket|info)$", "", name) for found in each for name in found)
        words = [f"`{name}`: {_HELP[name]}" for name in dict.fromkeys(names)]
        return "\n\n".join([self.about, *words])


RATE = "[$__rate_interval]"

OVERVIEW = (
    Graph("Events a second", "All rows made for the table.", "cps", (Line(f"sum(rate(tailrace_source_rows_total{{S}}{RATE}))"),)),
    Graph("Events missing now", "All chosen sources together.", "short", (Line("sum(tailrace_ledger_missing_events{S})"),)),
    Graph("Part that is missing", "Part of all events that producers have numbered.", "percentunit", (Line("sum(tailrace_ledger_missing_events{S}) / (sum(tailrace_ledger_expected_events{S}) > 0)"),)),
    Graph("Received", "Bytes a second, all sources.", "Bps", (Line(f"sum(rate(tailrace_source_received_bytes_total{{S}}{RATE}))"),)),
    Graph("Not in the table yet", "Safe, and not yet to be queried.", "bytes", (Line("sum(tailrace_spool_uncommitted_bytes{I})"),)),
    Graph("Imbalance", "Both kinds, of all chosen sources together.", "short", (Line("sum(abs(tailrace_ledger_imbalance_events{S})) + sum(abs(tailrace_source_imbalance_bytes{S}))"),)),
)  # fmt: skip

ROWS: dict[str, tuple[Graph, ...]] = {
    "Missing events, and why": (
        Graph("Events lost", "A second, by reason.", "cps", (Line(f"sum by (reason) (rate(tailrace_ledger_gap_events_total{{S}}{RATE}))", "{{reason}}"),), stacked=True),
        Graph("Events that arrived after all", "A second, by the gap's reason.", "cps", (Line(f"sum by (reason) (rate(tailrace_ledger_heal_events_total{{S}}{RATE}))", "{{reason}}"),), stacked=True),
        Graph("Missing now", "Events by source, and names that may be missing.", "short", (
            Line("tailrace_ledger_missing_events{S}", "{{source}}"),
            Line("tailrace_ledger_asked_names{S}", "{{source}} names"),
        )),
        Graph("Duplicates", "Events a second, by source.", "cps", (Line(f"sum by (source) (rate(tailrace_ledger_duplicate_events_total{{S}}{RATE}))", "{{source}}"),)),
        Graph("Dropped by the kernel", "Datagrams a second, by source.", "cps", (Line(f"sum by (source) (rate(tailrace_udp_kernel_dropped_datagrams_total{{S}}{RATE}))", "{{source}}"),)),
        Graph("Unreadable", "Bytes a second, by source.", "Bps", (Line(f"sum by (source) (rate(tailrace_source_malformed_bytes_total{{S}}{RATE}))", "{{source}}"),)),
    ),
    "Input": (
        Graph("Events", "Rows a second, by source.", "cps", (Line(f"sum by (source) (rate(tailrace_source_rows_total{{S}}{RATE}))", "{{source}}"),)),
        Graph("Bytes", "By source.", "Bps", (Line(f"sum by (source) (rate(tailrace_source_received_bytes_total{{S}}{RATE}))", "{{source}}"),)),
        Graph("Producers", "By source.", "short", (Line("sum by (source) (tailrace_source_open{S})", "{{source}}"),)),
        Graph("Restarts and refusals", "A second, by source; refusals also by cause.", "cps", (
            Line(f"sum by (source) (rate(tailrace_ledger_restarts_total{{S}}{RATE}))", "{{source}} restarts"),
            Line(f"sum by (source, cause) (rate(tailrace_source_refused_total{{S}}{RATE}))", "{{source}} {{cause}}"),
        )),
        Graph("Datagrams waiting", "Part of the socket's buffer that is full.", "percentunit", (Line("tailrace_udp_queue_bytes{S} / (tailrace_udp_buffer_bytes{S} > 0)", "{{source}}"),)),
        Graph("Files behind", "By source.", "bytes", (Line("sum by (source) (tailrace_tail_behind_bytes{S})", "{{source}}"),)),
    ),
    "Simulated time": (
        Graph("Slowdown", "Wall seconds a simulated second; the 20 slowest sessions.", "short", (Line("topk(20, tailrace_session_slowdown_ratio{S})", "{{source}} {{session}}"),)),
        Graph("Slowest session", "Wall seconds a simulated second, by source.", "short", (Line("source:tailrace_session_slowdown_ratio:max{S}", "{{source}}"),)),
        Graph("Ticks", "Ticks of sessions' own clocks in a second of wall time; the 20 fastest.", "cps", (Line("topk(20, tailrace_session_ticks_per_wall_second{S})", "{{source}} {{session}}"),)),
        Graph("Since the clock last advanced", "The 20 sessions that have stood longest, though events arrived in the last minute.", "s", (Line("topk(20, (time() - tailrace_session_advanced_timestamp_seconds{S}) and (time() - tailrace_session_last_event_timestamp_seconds{S} < 60))", "{{source}} {{session}}"),)),
        Graph("Sessions", "By progress.", "short", (Line("sum by (progress) (tailrace_source_followed_sessions{S})", "{{progress}}"),), stacked=True),
        Graph("Sessions not followed", "By source.", "short", (Line("sum by (source) (tailrace_source_unfollowed_sessions{S})", "{{source}}"),)),
    ),
    "On its way to the table": (
        Graph("Commits", "Half of the commits, and 99 of 100, took less.", "s", (
            Line(f"histogram_quantile(0.5, sum by (le) (rate(tailrace_store_commit_seconds_bucket{{I}}{RATE})))", "half"),
            Line(f"histogram_quantile(0.99, sum by (le) (rate(tailrace_store_commit_seconds_bucket{{I}}{RATE})))", "99 of 100"),
        )),
        Graph("Syncs", "Half of the syncs, and 99 of 100, took less.", "s", (
            Line(f"histogram_quantile(0.5, sum by (le) (rate(tailrace_spool_sync_seconds_bucket{{I}}{RATE})))", "half"),
            Line(f"histogram_quantile(0.99, sum by (le) (rate(tailrace_spool_sync_seconds_bucket{{I}}{RATE})))", "99 of 100"),
        )),
        Graph("Spool", "All chosen instances together.", "bytes", (
            Line("sum(tailrace_spool_size_bytes{I})", "on disk"),
            Line("sum(tailrace_spool_undecoded_bytes{I})", "not decoded"),
            Line("sum(tailrace_spool_uncommitted_bytes{I})", "not in the table"),
        )),
        Graph("Rows committed", "A second.", "cps", (Line(f"sum(rate(tailrace_store_committed_rows_total{{I}}{RATE}))", "rows"),)),
        Graph("State", "Collectors in each state, and collectors for which each condition holds.", "short", (
            Line("sum by (state) (tailrace_state{I})", "{{state}}"),
            Line("sum by (condition) (tailrace_condition{I})", "{{condition}}"),
        )),
        Graph("Versions", "Collectors by version, and by what reads events of the usual shape.", "short", (Line("sum by (version, kernels) (tailrace_build_info{I})", "{{version}}, kernels: {{kernels}}"),)),
        Graph("Heartbeat", "Age of the newest heartbeat in the table, and the time in which 99 of 100 were committed.", "s", (
            Line("max by (instance) (tailrace_heartbeat_age_seconds{I})", "{{instance}}"),
            Line("histogram_quantile(0.99, sum by (le) (rate(tailrace_heartbeat_commit_seconds_bucket{I}[5m])))", "99 of 100 were in the table within"),
        )),
        Graph("Admin endpoint", "Requests a second by status code, and refused connections by cause.", "cps", (
            Line(f"sum by (code) (rate(tailrace_admin_requests_total{{I}}{RATE}))", "{{code}}"),
            Line(f"sum by (cause) (rate(tailrace_admin_refused_total{{I}}{RATE}))", "{{cause}}"),
        )),
        Graph("Upkeep", "A second, by outcome.", "cps", (Line(f"sum by (outcome) (rate(tailrace_store_upkeeps_total{{I}}{RATE}))", "{{outcome}}"),)),
    ),
    "All collectors of a table": (
        Graph("Health", "Collectors in each state, as the table shows them.", "short", (Line("sum by (health) (tailrace_collector_health)", "{{health}}"),)),
        Graph("Since the newest heartbeat", "By collector.", "s", (Line("time() - max by (collector, host) (tailrace_collector_heartbeat_timestamp_seconds)", "{{collector}} {{host}}"),)),
        Graph("Received and not committed", "By collector, as its newest heartbeat says.", "bytes", (Line("max by (collector, host) (tailrace_collector_uncommitted_bytes)", "{{collector}} {{host}}"),)),
        Graph("Missing, by collector", "As its newest heartbeat says.", "short", (Line("max by (collector, host) (tailrace_collector_missing_events)", "{{collector}} {{host}}"),)),
    ),
}  # fmt: skip


def build() -> str:
    """Return the dashboard as Grafana imports it."""
    board = (
        dashboard.Dashboard("Tailrace")
        .uid("tailrace")
        .description("Input, missing events and their reasons, and how soon rows are in the table.")
        .tags(["tailrace"])
        .refresh("10s")
        .time("now-1h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(_variable("instance", "label_values(tailrace_uptime_seconds, instance)"))
        .with_variable(
            _variable("source", f"label_values(tailrace_source_open{{{OF_INSTANCE}}}, source)")
        )
    )
    for graph in OVERVIEW:
        board.with_panel(_stat(graph))
    for title, graphs in ROWS.items():
        board.with_row(dashboard.Row(title))
        for graph in graphs:
            board.with_panel(_graph(graph))
    return str(JSONEncoder(sort_keys=True, indent=2).encode(board.build())) + "\n"


def expressions() -> list[str]:
    """All that it asks of Prometheus."""
    graphs = [*OVERVIEW, *(graph for row in ROWS.values() for graph in row)]
    return [line.promql for graph in graphs for line in graph.lines]


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .datasource(PROMETHEUS)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)  # noqa: FBT003 - the library's form
        .include_all(True)  # noqa: FBT003
        .all_value(".*")
    )


def _stat(graph: Graph) -> stat.Panel:
    panel = stat.Panel().title(graph.title).description(graph.description).unit(graph.unit)
    panel.datasource(PROMETHEUS).span(STAT_WIDTH).height(STAT_HEIGHT)
    for query in _queries(graph):
        panel.with_target(query)
    return panel


def _graph(graph: Graph) -> timeseries.Panel:
    panel = timeseries.Panel().title(graph.title).description(graph.description).unit(graph.unit)
    panel.datasource(PROMETHEUS).span(PANEL_WIDTH).height(PANEL_HEIGHT).min(0)
    panel.legend(
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)  # noqa: FBT003
    )
    if graph.stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    for query in _queries(graph):
        panel.with_target(query)
    return panel


def _queries(graph: Graph) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery()
        .ref_id(chr(ord("A") + index))
        .expr(line.promql)
        .legend_format(line.legend or graph.title)
        for index, line in enumerate(graph.lines)
    ]


if __name__ == "__main__":
    print(build(), end="")  # noqa: T201 - its purpose
