"""What a checkpoint was written by: operators and stores by name, compared before a start writes anything."""

from __future__ import annotations

from pathlib import Path

from suiro.streams.spark.plan import Plan

__all__ = ["check_description"]


def check_description(plan: Plan, checkpoint: Path) -> None:
    del plan, checkpoint
