"""The steps of a drawn sequence of requests that are about groups: members of both protocols, and offsets."""

from __future__ import annotations

from typing import Any

from support.drawn_requests import Side
from support.group_wire import Member, delete_offsets, describe, list_groups
from support.group_wire import delete_group as delete_group_code
from support.waiting import wait_until


def assign_at_once(side: Side, group: str) -> None:
    """Without the least time between two assignments."""
    config = {"name": "consumer.assignment.interval.ms", "config_operation": 0, "value": "0"}
    wanted = ({"resource_type": 32, "resource_name": side.name(group), "configs": (config,)},)
    (altered,) = side.ask("incremental_alter_configs", 1, resources=wanted)["responses"]
    assert altered["error_code"] == "none", altered


def commit_offset(side: Side, group: str, topic: str, index: int, offset: int, who: str) -> Any:
    """By nobody, by the member of the classic protocol, or by the first one of the new."""
    member_id, epoch = "", -1
    if who == "classic":
        member_id, epoch = side.classic.get(group, ("nobody", 1))
    elif who == "new" and (group, 0) in side.members:
        member_id, epoch = side.members[group, 0].member_id, side.members[group, 0].epoch
    part = {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
    answer = side.ask(
        "offset_commit",
        9,
        group_id=side.name(group),
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=({"name": side.name(topic), "partitions": ({"committed_leader_epoch": -1, **part},)},),
    )
    return answer["topics"][0]["partitions"]


def fetch_offsets(side: Side, group: str, stable: bool) -> Any:
    groups = ({"group_id": side.name(group), "topics": None},)
    (found,) = side.ask("offset_fetch", 8, groups=groups, require_stable=stable)["groups"]
    return found["error_code"], sorted(
        (
            side.short(topic["name"]),
            part["partition_index"],
            part["committed_offset"],
            part["metadata"],
            part["error_code"],
        )
        for topic in found["topics"]
        for part in topic["partitions"]
    )


def remove_offsets(side: Side, group: str, topic: str, index: int) -> Any:
    return delete_offsets(side.wire, side.name(group), side.name(topic), index)


def delete_group(side: Side, group: str) -> Any:
    return delete_group_code(side.wire, side.name(group))


def groups(side: Side) -> Any:
    """All of them, as the list and both descriptions tell."""
    found = {}
    for name, kind in list_groups(side.wire).items():
        if name.startswith(side.prefix) and "-probe" not in name:
            (old,) = side.ask("describe_groups", 6, groups=(name,))["groups"]
            new = describe(side.wire, name)
            found[side.short(name)] = (
                kind,
                (old["error_code"], old["group_state"], old["protocol_type"], old["protocol_data"]),
                (new.error_code.name, new.group_state, new.group_epoch, new.assignment_epoch),
                sorted(member.member_id for member in new.members if member.member_id.startswith("m")),
            )
    return found


def member(side: Side, group: str, number: int, topic: str, act: str) -> Any:
    """A member of the new protocol joins, leaves or goes on; then all of them until nobody hears anything new."""
    if group in side.classic:
        return "a group of the other protocol"
    one = side.members.setdefault((group, number), Member(side.wire, side.name(group), member_id=f"m{number}"))
    answer = {"join": lambda: one.join(side.name(topic)), "leave": one.leave, "beat": one.beat}[act]()
    if act == "leave":
        one.epoch, one.owned = 0, {}
    joined = [other for (of, _), other in side.members.items() if of == group and other.epoch > 0]

    def is_quiet() -> bool:
        quiet = [other.beat().assignment is None for other in joined]
        told = describe(side.wire, side.name(group))
        epochs = {told.group_epoch, told.assignment_epoch, *(other.epoch for other in joined)}
        return all(quiet) and (not joined or (told.group_state == "Stable" and len(epochs) == 1))

    wait_until(is_quiet, what="an assignment that everybody has")
    return answer.error_code.name, sorted((o.member_id, o.epoch, sorted(o.partitions)) for o in joined)


def classic_member(side: Side, group: str, topic: str, act: str) -> Any:
    """The one member of the classic protocol that a group may have here."""
    if any(of == group and one.epoch > 0 for (of, _), one in side.members.items()):
        return "a group of the other protocol"
    member_id, generation = side.classic.get(group, ("", -1))
    name = side.name(group)
    match act:
        case "join":
            subscription = b"\0\1\0\0\0\1" + len(side.name(topic)).to_bytes(2, "big")
            subscription += side.name(topic).encode() + b"\xff\xff\xff\xff\0\0\0\0"
            for _ in range(2):  # without an id it is given one, and asked to come back with it
                answer = side.ask(
                    "join_group",
                    9,
                    group_id=name,
                    session_timeout=45_000,
                    rebalance_timeout=60_000,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocols=({"name": "range", "metadata": subscription},),
                )
                member_id, generation = answer["member_id"], answer["generation_id"]
                if answer["error_code"] != "member_id_required":
                    break
            side.classic[group] = member_id, generation
            led = answer["leader"] == member_id
            return answer["error_code"], generation, answer["protocol_name"], led, len(answer["members"])
        case "sync":
            answer = side.ask(
                "sync_group",
                5,
                group_id=name,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=({"member_id": member_id, "assignment": b"\0\0\0\0\0\0\xff\xff\xff\xff"},),
            )
            return answer["error_code"], answer["protocol_name"], len(answer["assignment"])
        case "beat":
            return side.ask("heartbeat", 4, group_id=name, generation_id=generation, member_id=member_id)["error_code"]
        case _:
            side.classic.pop(group, None)
            answer = side.ask("leave_group", 5, group_id=name, members=({"member_id": member_id},))
            return answer["error_code"], [one["error_code"] for one in answer["members"]]
