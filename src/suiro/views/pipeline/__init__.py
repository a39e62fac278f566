"""A version of a view while it is built: its process on Spark, its cuts, its follower, and its share of the machine.

The constants are the names of the files in a version's folder.
"""

SPEC = "spec.json"
CODE = "code"
STATE = "state"
LOG = "pipeline.log"
LOCK = "pipeline.lock"
