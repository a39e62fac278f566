"""Writes the pages of the reference that are made from the code: `make reference`. A test keeps them current."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from suiro.broker.dispatch import APIS
from suiro.config import NodeSettings

HERE = Path(__file__).parent


def settings() -> str:
    lines = [
        "# Settings of the node",
        "",
        "Given with `--set NAME=VALUE`, in a file with `--config`, or as `settings=` in Python. Names are Kafka's. An",
        "unknown name is an error, and so is a setting of Kafka that the node does not have.",
        "",
        "| setting | default | for a topic | meaning |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(NodeSettings):
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        topic = f"`{field.metadata['topic']}`" if field.metadata.get("topic") else ""
        lines.append(f"| `{field.name.replace('_', '.')}` | {default} | {topic} | {field.metadata['doc']} |")
    return "\n".join(lines) + "\n"


def apis() -> str:
    lines = [
        "# What the node answers",
        "",
        "Kafka APIs and their versions, as the node tells clients in ApiVersions. Whatever is not here is refused.",
        "",
        "| key | API | versions |",
        "|---|---|---|",
    ]
    for api in APIS.values():
        name = "".join(part.capitalize() for part in api.name.split("_"))
        lines.append(f"| {api.key} | {name} | {api.min_version} to {api.max_version} |")
    return "\n".join(lines) + "\n"


PAGES = {"settings.md": settings, "apis.md": apis}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
