"""What a package of one's own can add to stepscope: a report, a cause and a workload."""
