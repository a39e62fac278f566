"""`suiro cluster`: the brokers, the size of the cluster, its current problems."""

from __future__ import annotations

from suiro.cli.command_groups import Group
from suiro.cli.everyday import AS_JSON, Connection, connected, print_fields, print_json, print_table

cluster = Group("cluster", "Brokers, number of topics and groups, current problems.")


@cluster.itself
def cluster_(connection: Connection, as_json: bool = AS_JSON) -> None:
    """Show the brokers, the number of topics and groups, and current problems."""
    with connected(connection) as client:
        from suiro.console.topics import describe_cluster

        found = describe_cluster(client)
        if as_json:
            print_json(found)
            return
        print_fields(
            {
                "cluster": found.cluster_id,
                "topics": found.topics,
                "partitions": found.partitions,
                "under-replicated": found.under_replicated,
                "without-leader": found.without_leader,
                "groups": found.groups,
            }
        )
        print_table(
            "broker=id, address, rack, controller",
            found.brokers,
            address="{0.host}:{0.port}".format,
            controller=lambda one: one.id == found.controller,
        )
