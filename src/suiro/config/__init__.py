"""The node's settings, by Kafka's names: types, ranges and defaults in one table, and readers for them.

- `declare`: the settings of topics, and how one of the node is declared. `table`: those of the node.
- `node_settings`: `NodeSettings`, the table with its readers, and look-ups by name. `properties`: properties files.
- `kafka_names`: settings of Apache Kafka that a node does not have.

Topic settings have a node-wide default under another name, as in Kafka: `segment.bytes` and `log.segment.bytes`;
`topic_settings` maps them. An unknown name is an error. The error for a setting that only Apache Kafka has says so.
"""

from suiro.config.declare import AS_RETENTION, DAY_MS, MAX_INT, MAX_LONG, TOPIC_SETTINGS, WEEK_MS, TopicSetting
from suiro.config.node_settings import (
    LISTENER_PREFIX,
    NodeSettings,
    describe,
    is_dynamic,
    is_known_to_kafka,
    is_of_kafka,
    is_sensitive,
    kind,
    node_setting_names,
    parse,
    setting_of_listener,
    topic_settings,
)
from suiro.config.properties import read_properties
from suiro.config.table import STANDARD_AUTHORIZER

__all__ = [
    "AS_RETENTION",
    "DAY_MS",
    "LISTENER_PREFIX",
    "MAX_INT",
    "MAX_LONG",
    "STANDARD_AUTHORIZER",
    "TOPIC_SETTINGS",
    "WEEK_MS",
    "NodeSettings",
    "TopicSetting",
    "describe",
    "is_dynamic",
    "is_known_to_kafka",
    "is_of_kafka",
    "is_sensitive",
    "kind",
    "node_setting_names",
    "parse",
    "read_properties",
    "setting_of_listener",
    "topic_settings",
]
