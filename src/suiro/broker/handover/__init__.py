"""A stopped node's data folder becomes Apache Kafka's. Enter by `handing_over`.

`stopped_node` holds the folder and copies it, `coordinator_topics` lays out offsets and transactions over more
partitions, `metadata_records` says in Kafka's words what is in no partition.
"""

from suiro.broker.handover.stopped_node import HandedOver, handing_over, node_id_of

__all__ = ["HandedOver", "handing_over", "node_id_of"]
