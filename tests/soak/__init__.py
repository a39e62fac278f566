"""The soak: a pipeline of two applications on one log, all of it killed again and again; a checker reads along.

    python -m tests.soak --minutes 45

A producer writes numbered records; format "suiro" copies them (`copy`), a topology counts the copies (`count`).
What has to come out is known for every record, so the checker needs no more memory after a day than after a minute.
"""
