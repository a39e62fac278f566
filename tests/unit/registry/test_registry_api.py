"""The registry's rules through its HTTP API, over a log that is a list: every path, code and mode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.registry import Api, apply

from suiro.registry import endpoints
from suiro.registry.records import Key
from suiro.registry.state import State


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


ONE = record(("a", "int"))
TWO = {
    **record(("a", "int")),
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}],
}
OTHER = record(("a", "string"))


@pytest.fixture
def api() -> Api:
    return Api()


def text(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"))


# -- subjects and versions -------------------------------------------------------------------------------


def test_a_schema_is_registered_once_and_found_in_every_way(api: Api) -> None:
    schema_id = api.register("s", ONE)
    assert api.register("s", ONE) == schema_id
    assert api.register("s", json.dumps(ONE, indent=4)) == schema_id
    assert api.register("other", ONE) == schema_id
    assert api.register("s", TWO) == schema_id + 1
    assert api.get("subjects") == ["other", "s"]
    assert api.get("subjects/s/versions") == [1, 2]
    first = api.get("subjects/s/versions/1")
    assert {name: first[name] for name in ("subject", "version", "id", "schema")} == {
        "subject": "s",
        "version": 1,
        "id": schema_id,
        "schema": text(ONE),
    }
    assert first["schemaType"] == "AVRO"
    assert api.get("subjects/s/versions/latest")["version"] == 2
    assert api.get("subjects/s/versions/-1")["version"] == 2
    assert api.get(f"schemas/ids/{schema_id}")["schema"] == text(ONE)
    assert api.raw("GET", f"schemas/ids/{schema_id}/schema").text == text(ONE)
    assert api.raw("GET", "subjects/s/versions/1/schema").text == text(ONE)
    assert api.get(f"schemas/ids/{schema_id}/subjects") == ["other", "s"]
    assert api.get(f"schemas/ids/{schema_id}/versions") == [
        {"subject": "other", "version": 1},
        {"subject": "s", "version": 1},
    ]
    assert api.get(f"schemas/guids/{first['guid']}")["schema"] == text(ONE)
    assert api.get(f"schemas/guids/{first['guid']}/ids") == [{"context": ".", "id": schema_id}]
    assert api("POST", "subjects/s", {"schema": text(TWO)})[1]["version"] == 2
    assert [one["version"] for one in api.get("schemas?subjectPrefix=s")] == [1, 2]
    assert [one["version"] for one in api.get("schemas?subjectPrefix=s&latestOnly=true")] == [2]
    assert sorted(api.get("schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]
    assert api.get(f"schemas/ids/{schema_id}?fetchMaxId=true")["maxId"] == 2


def test_lists_come_in_pages_and_by_prefix(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b-1", "a-1", "a-2", "a-3"):
        api.register(name, ONE)
    assert api.get("subjects?subjectPrefix=a-") == ["a-1", "a-2", "a-3"]
    assert api.get("subjects?subjectPrefix=a-&offset=1&limit=1") == ["a-2"]
    assert api.get("subjects?offset=3") == ["b-1"]
    assert api.refused("GET", "subjects?limit=x") == 422
    monkeypatch.setattr(endpoints, "SCHEMAS_MAX", 3)
    for limit, names in {"-1": "a-1 a-2 a-3", "0": "a-1 a-2 a-3", "2": "a-1 a-2", "4": "a-1 a-2 a-3"}.items():
        assert [one["subject"] for one in api.get(f"schemas?limit={limit}")] == names.split()
    assert [one["subject"] for one in api.get("schemas?offset=3")] == ["b-1"]


def test_a_subject_may_hold_any_character_but_control_characters(api: Api) -> None:
    api.register("orders%2Fvalue%20%C3%A9", ONE)
    assert api.get("subjects") == ["orders/value é"]
    assert api.get("subjects/orders%2Fvalue%20%C3%A9/versions") == [1]
    assert api.refused("POST", "subjects/a%0Ab/versions", {"schema": text(ONE)}) == 42208


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "subjects/nix/versions", None, 40401),
        ("GET", "subjects/nix/versions/1", None, 40401),
        ("GET", "subjects/s/versions/7", None, 40402),
        ("GET", "subjects/s/versions/x", None, 42202),
        ("GET", "subjects/s/versions/0", None, 42202),
        ("GET", "subjects/s/versions/2147483648", None, 42202),
        ("GET", "schemas/ids/77", None, 40403),
        ("GET", "schemas/ids/" + "7" * 5_000, None, 40403),
        ("GET", "subjects/s/versions/" + "7" * 5_000, None, 42202),
        ("GET", "schemas/guids/77", None, 40403),
        ("POST", "subjects/nix", {"schema": text(ONE)}, 40401),
        ("POST", "subjects/s", {"schema": text(OTHER)}, 40403),
        ("POST", "subjects/s/versions", {"schema": text(OTHER)}, 409),
        ("POST", "subjects/s/versions", {"schema": "{"}, 42201),
        ("POST", "subjects/new/versions", {"schema": ""}, 42201),
        ("POST", "subjects/s/versions", {"schema": text(ONE), "schemaType": "XML"}, 42201),
        ("POST", "subjects/s/versions", {"schema": 7}, 422),
        ("POST", "subjects/s/versions", {"schema": text(ONE), "references": [{"name": "x"}]}, 422),
        ("POST", "subjects/s/versions", {"schema": text(ONE), "ruleSet": {"domainRules": [{}]}}, 42210),
        ("POST", "subjects/s/versions", [], 422),
        ("POST", "subjects/s/versions", b"{", 400),
        ("POST", "subjects/s/versions", b"[" * 100_000, 400),
        ("POST", "subjects/s/versions", {"schema": "[" * 100_000}, 42201),
        ("POST", "subjects/s/versions", b"[" + b"[]," * 150_001 + b"1]", 413),
        ("POST", "subjects/s/versions", {"schema": f"[{'[],' * 150_001}1]"}, 413),
        ("POST", "subjects/s/versions", rb'{"schema": "[' + rb"\u005b]\u002C" * 150_001 + b'1]"}', 413),
        ("GET", "subjects", b"1," * 300_001, 413),
        (
            "POST",
            "subjects/s/versions",
            {"schema": '{"not":' * 20_000 + "{}" + "}" * 20_000, "schemaType": "JSON"},
            42201,
        ),
        ("POST", "compatibility/subjects/s/versions/9", {"schema": text(ONE)}, 40402),
        ("PUT", "config", {"compatibility": "SOMETIMES"}, 42203),
        ("PUT", "config", {}, 42203),
        ("GET", "config/s", None, 40408),
        ("DELETE", "config/s", None, 40401),
        ("PUT", "mode", {"mode": "NAP"}, 42204),
        ("GET", "mode/s", None, 40409),
        ("DELETE", "mode/s", None, 40401),
        ("DELETE", "subjects/nix", None, 40401),
        ("DELETE", "subjects/s?permanent=true", None, 40405),
        ("DELETE", "subjects/s/versions/9", None, 40402),
        ("DELETE", "subjects/s/versions/1?permanent=true", None, 40407),
        ("POST", "subjects/%E4/versions", {"schema": text(ONE)}, 400),
        ("GET", "schemas/ids/1?subject=%E4", None, 400),
        ("GET", "nowhere", None, 404),
        ("PATCH", "subjects", None, 405),
    ],
)
def test_refusals(api: Api, method: str, path: str, body: Any, code: int) -> None:
    api.register("s", ONE)
    written = len(api.storage.log)
    assert api.refused(method, path, body) == code
    assert len(api.storage.log) == written


def test_a_web_page_changes_nothing(api: Api) -> None:
    api.register("s", "string")
    page = {"origin": "http://pages.example"}
    for method, path, body in (
        ("POST", "subjects/x/versions", {"schema": '"string"'}),
        ("PUT", "config", {"compatibility": "NONE"}),
        ("PUT", "mode", {"mode": "READONLY"}),
        ("DELETE", "subjects/s", None),
    ):
        assert api.raw(method, path, body, **page).status_code == 403
        assert api.raw(method, path, body, sec_fetch_site="cross-site").status_code == 403
    assert api.get("subjects") == ["s"]
    own = {"origin": "http://registry", "sec_fetch_site": "same-origin"}  # of a page under its own address
    assert api.raw("PUT", "config", {"compatibility": "NONE"}, **own).status_code == 200


def test_without_users_it_answers_under_names_of_this_machine_only() -> None:
    api = Api(loopback_only=True)
    assert api.raw("GET", "subjects").status_code == 403
    assert api.raw("GET", "subjects", host="pages.example").json()["error_code"] == 403
    assert api.raw("GET", "subjects", host="localhost:8081").status_code == 200


def test_head_has_the_head_of_get(api: Api) -> None:
    """Load balancers ask so whether it answers. It was 405."""
    for path, status in (("", 200), ("subjects", 200), ("subjects/nix/versions", 404), ("associations", 405)):
        assert api.raw("HEAD", path).status_code == status


def test_content_types(api: Api) -> None:
    response = api.raw("GET", "subjects")
    assert response.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert api.raw("GET", "subjects", accept="application/json").headers["content-type"] == "application/json"
    assert api.raw("GET", "subjects", accept="text/html").status_code == 406
    assert api.raw("PUT", "config", b"{}", **{"content-type": "text/plain"}).status_code == 415
    kept = {"content-type": "application/vnd.schemaregistry+json; charset=utf-8"}
    assert api.raw("PUT", "config", b'{"compatibility": "FULL"}', **kept).status_code == 200


# -- deleting --------------------------------------------------------------------------------------------


def test_a_soft_delete_hides_and_a_permanent_one_takes_away(api: Api) -> None:
    schema_id = api.register("s", ONE)
    api.register("s", TWO)
    assert api("DELETE", "subjects/s/versions/1") == (200, 1)
    assert api.refused("DELETE", "subjects/s/versions/1") == 40406
    assert api.get("subjects/s/versions") == [2]
    assert api.get("subjects/s/versions?deleted=true") == [1, 2]
    assert api.get("subjects/s/versions?deletedOnly=true") == [1]
    assert api.refused("GET", "subjects/s/versions/1") == 40402
    assert api.get("subjects/s/versions/1?deleted=true")["deleted"] is True
    assert api.get(f"schemas/ids/{schema_id}")["schema"] == text(ONE)  # data written with it stays readable
    assert api.get(f"schemas/ids/{schema_id}/versions") == []
    assert api("DELETE", "subjects/s/versions/1?permanent=true") == (200, 1)
    assert api.refused("GET", f"schemas/ids/{schema_id}") == 40403
    assert api("DELETE", "subjects/s/versions/latest") == (200, 2)
    assert api.refused("GET", "subjects/s/versions") == 40401
    assert api.refused("DELETE", "subjects/s") == 40404


def test_a_deleted_subject_comes_back_with_new_versions_and_the_same_id(api: Api) -> None:
    schema_id = api.register("s", ONE)
    api("PUT", "config/s", {"compatibility": "FULL"})
    api("PUT", "mode/s", {"mode": "READWRITE"})
    assert api("DELETE", "subjects/s") == (200, [1])
    assert api.refused("GET", "config/s") == 40408
    assert api.refused("GET", "mode/s") == 40409
    assert api.get("subjects?deleted=true") == ["s"]
    assert api.register("s", ONE) == schema_id
    assert api.get("subjects/s/versions") == [2]
    assert api("DELETE", "subjects/s") == (200, [2])
    assert api("DELETE", "subjects/s?permanent=true") == (200, [1, 2])
    assert api.get("subjects?deleted=true") == []
    assert api.register("s", TWO) == schema_id + 1
    assert api.get("subjects/s/versions") == [1]


def test_what_others_refer_to_stays(api: Api) -> None:
    money = record(("cents", "long"), name="Money")
    money_id = api.register("money", money)
    references = [{"name": "Money", "subject": "money", "version": 1}]
    order = record(("price", "Money"), name="Order")
    order_id = api.register("order", order, references=references)
    assert api.get("subjects/money/versions/1/referencedby") == [order_id]
    assert api.get(f"schemas/ids/{order_id}")["references"] == references
    assert "cents" in api.get(f"schemas/ids/{order_id}?format=resolved")["schema"]
    assert api.refused("DELETE", "subjects/money") == 42206
    assert api.refused("DELETE", "subjects/money/versions/1") == 42206
    assert api.refused("POST", "subjects/x/versions", {"schema": text(order)}) == 42201
    lost = [{**references[0], "version": 9}]
    assert api.refused("POST", "subjects/x/versions", {"schema": text(order), "references": lost}) == 42201
    latest = [{**references[0], "version": -1}]
    assert api.register("order", order, references=latest) == order_id
    assert api("DELETE", "subjects/order")[0] == 200
    assert api("DELETE", "subjects/money")[0] == 200
    assert api.refused("DELETE", "subjects/money?permanent=true") == 42206  # the hidden order needs it yet
    assert api("DELETE", "subjects/order?permanent=true")[0] == 200
    assert api("DELETE", "subjects/money?permanent=true")[0] == 200
    assert money_id < order_id


def test_an_id_is_never_given_twice(api: Api) -> None:
    api.register("s", ONE)
    last = api.register("t", TWO)
    api("DELETE", "subjects/t")
    api("DELETE", "subjects/t?permanent=true")
    assert api.register("u", OTHER) == last + 1


# -- settings --------------------------------------------------------------------------------------------


def test_levels_are_a_subjects_own_its_contexts_or_everybodys(api: Api) -> None:
    assert api.get("config") == {"compatibilityLevel": "BACKWARD"}
    assert api("PUT", "config", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert api.get("config") == {"compatibilityLevel": "FULL"}
    assert api.get("config/s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert api("PUT", "config/s", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert api.get("config/s") == {"compatibilityLevel": "NONE"}
    assert api("PUT", "config/:.c:", {"compatibility": "FORWARD"})[0] == 200
    assert api.get("config/:.c:s?defaultToGlobal=true") == {"compatibilityLevel": "FORWARD"}
    assert api("DELETE", "config/s") == (200, {"compatibilityLevel": "NONE"})
    assert api("DELETE", "config") == (200, {"compatibilityLevel": "FULL"})
    assert api.get("config") == {"compatibilityLevel": "BACKWARD"}


def test_a_configuration_keeps_what_a_request_does_not_name(api: Api) -> None:
    everything = {
        "compatibility": "FULL",
        "compatibilityGroup": "major",
        "defaultMetadata": {"properties": {"owner": "us"}},
        "overrideMetadata": {"properties": {"zone": "eu"}},
        "defaultRuleSet": {"domainRules": [{"name": "r", "type": "CEL", "kind": "CONDITION", "mode": "WRITE"}]},
    }
    assert api("PUT", "config/s", everything) == (200, everything)
    assert api("PUT", "config/s", {"compatibility": "NONE"})[0] == 200
    kept = {**everything, "compatibilityLevel": "NONE"}
    del kept["compatibility"]
    assert api.get("config/s") == kept
    api.register("s", ONE, metadata={"properties": {"owner": "them"}})
    latest = api.get("subjects/s/versions/latest")
    assert latest["metadata"] == {"properties": {"owner": "them", "zone": "eu"}}
    assert latest["ruleSet"]["domainRules"][0]["name"] == "r"
    assert api("PUT", "config/s", {"compatibilityGroup": None})[0] == 200
    assert "compatibilityGroup" not in api.get("config/s")


@pytest.mark.parametrize(
    "config",
    [
        {"defaultMetadata": {"properties": {}, "owner": "us"}},
        {"overrideMetadata": {"tags": {"a": ["PII", "PII"]}}},
        {"defaultRuleSet": {"domainRules": [], "migrationRules": None}},
    ],
)
def test_a_schema_that_is_registered_twice_is_one_version(api: Api, config: dict[str, Any]) -> None:
    """The second time, parts of the configuration were merged that the first time were taken as they are."""
    assert api("PUT", "config", config)[0] == 200
    assert api.register("s", ONE) == api.register("s", ONE)
    assert api.get("subjects/s/versions") == [1]


def test_a_compatibility_group_is_compared_within_itself(api: Api) -> None:
    api("PUT", "config/s", {"compatibility": "BACKWARD", "compatibilityGroup": "major"})
    api.register("s", ONE, metadata={"properties": {"major": "1"}})
    assert api.refused("POST", "subjects/s/versions", {"schema": text(OTHER)}) == 409
    api.register("s", OTHER, metadata={"properties": {"major": "2"}})


def test_modes(api: Api) -> None:
    api.register("s", ONE)
    assert api.get("mode") == {"mode": "READWRITE"}
    assert api("PUT", "mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert api.get("mode/s") == {"mode": "READONLY"}
    assert api.refused("POST", "subjects/s/versions", {"schema": text(TWO)}) == 42205
    assert api.refused("DELETE", "subjects/s") == 42205
    api.register("t", TWO)
    assert api("DELETE", "mode/s") == (200, {"mode": "READONLY"})
    api.register("s", TWO)
    assert api("PUT", "mode", {"mode": "READONLY_OVERRIDE"})[0] == 200
    assert api("PUT", "mode/s", {"mode": "READWRITE"})[0] == 200
    assert api.refused("POST", "subjects/s/versions", {"schema": text(OTHER)}) == 42205
    assert api.refused("PUT", "config/s", {"compatibility": "NONE"}) == 42205
    assert api.get("mode/x?defaultToGlobal=true") == {"mode": "READONLY_OVERRIDE"}
    assert api("DELETE", "mode") == (200, {"mode": "READONLY_OVERRIDE"})
    api.register("s", TWO)


def test_import_takes_ids_and_versions_as_they_come(api: Api) -> None:
    given = {"schema": text(ONE), "id": 100, "version": 3}
    assert api.refused("POST", "subjects/s/versions", given) == 42205
    api.register("there", OTHER)
    assert api.refused("PUT", "mode", {"mode": "IMPORT"}) == 42205
    assert api("PUT", "mode?force=true", {"mode": "IMPORT"})[0] == 200
    assert api.refused("POST", "subjects/s/versions", {"schema": text(ONE)}) == 42205
    assert api("POST", "subjects/s/versions", given)[1]["id"] == 100
    assert api.get("subjects/s/versions") == [3]
    # In this mode nothing is compared; an id still means one schema.
    assert api("POST", "subjects/s/versions", {"schema": text(OTHER), "id": 101, "version": 1})[0] == 200
    clash = {"schema": text(TWO), "id": 100, "version": 4}
    assert api.refused("POST", "subjects/s/versions", clash) == 42205
    assert api.get("subjects/s/versions") == [1, 3]
    api("PUT", "mode", {"mode": "READWRITE"})
    assert api.register("u", TWO) == 102


def test_import_takes_one_schema_as_several_versions(api: Api) -> None:
    """A subject whose latest version is a schema that it had before: A, B, and A again."""
    api("PUT", "mode", {"mode": "IMPORT"})
    for version, (schema_id, schema) in enumerate([(1, ONE), (2, OTHER), (1, ONE)], 1):
        body = {"schema": text(schema), "id": schema_id, "version": version}
        for _ in range(2):
            status, answer = api("POST", "subjects/s/versions", body)
            assert (status, answer["id"], answer["version"]) == (200, schema_id, version)
    assert api.get("subjects/s/versions") == [1, 2, 3]
    assert api.get("subjects/s/versions/latest")["schema"] == text(ONE)
    # It has it already; without a version, the newest is meant.
    assert api("POST", "subjects/s/versions", {"schema": text(ONE), "id": 1})[1]["version"] == 3


@pytest.mark.parametrize("schema", [{"type": 5}, {"properties": 5}, {"minLength": "x"}])
def test_an_import_that_is_no_schema_is_named_when_another_is_compared_with_it(api: Api, schema: Any) -> None:
    """What is imported is not checked. A later registration must not fail as if the registry were damaged."""
    api("PUT", "mode/s", {"mode": "IMPORT"})
    api.register("s", schema, schemaType="JSON", id=1, version=1)
    api("PUT", "mode/s", {"mode": "READWRITE"})
    new = {"minLength": 1, "properties": {"a": {"type": "string"}}}
    status, answer = api("POST", "subjects/s/versions", {"schema": text(new), "schemaType": "JSON"})
    assert (status, answer["error_code"]) == (422, 42201)
    assert "version 1" in answer["message"]


def test_numbers_end_at_32_bits(api: Api) -> None:
    """What is imported beyond would have no place in the wire format, and all ids after it, too."""
    last = (1 << 31) - 1
    api("PUT", "mode/s", {"mode": "IMPORT"})
    for name in ("id", "version"):
        given = {"schema": text(ONE), "id": 1, "version": 1, name: last + 1}
        assert api.refused("POST", "subjects/s/versions", given) == 422
    reference = {"name": "R", "subject": "s", "version": last + 1}
    assert api.refused("POST", "subjects/u/versions", {"schema": text(ONE), "references": [reference]}) == 422
    assert api("POST", "subjects/s/versions", {"schema": text(ONE), "id": last, "version": last})[0] == 200
    assert api.get(f"subjects/s/versions/{last}")["id"] == last
    assert api.register("u", ONE) == last
    assert api.refused("POST", "subjects/u/versions", {"schema": text(TWO)}) == 42205
    assert api.register(":.c:u", TWO) == 1
    api("PUT", "mode/s", {"mode": "READWRITE"})
    assert api.refused("POST", "subjects/s/versions", {"schema": text(TWO)}) == 42205


@pytest.mark.parametrize(
    "given",
    [
        {"alias": 5},
        {"normalize": "maybe"},
        {"compatibilityGroup": {}},
        {"defaultMetadata": "x"},
        {"overrideMetadata": {"properties": 5}},
        {"defaultMetadata": {"tags": {"a": "b"}}},
        {"defaultMetadata": {"sensitive": "x"}},
        {"overrideRuleSet": []},
    ],
    ids=str,
)
def test_a_configuration_is_refused_that_no_schema_could_be_registered_with(api: Api, given: dict[str, Any]) -> None:
    assert api.refused("PUT", "config/s", given) == 422
    api.register("s", ONE, metadata={"properties": {"owner": "us"}})
    bad = {"schema": text(TWO), "metadata": {"tags": []}, "ruleSet": {"domainRules": 5}}
    assert api.refused("POST", "subjects/s/versions", bad) == 42210
    assert api.refused("POST", "subjects/s/versions", {**bad, "ruleSet": None, "metadata": {"tags": [1]}}) == 422
    assert api.refused("PUT", "config/s", {"defaultRuleSet": {"domainRules": [{"type": "CEL"}]}}) == 42210
    assert api("PUT", "config/s", {"normalize": "False"}) == (200, {"normalize": False})


def test_contexts_have_their_own_ids(api: Api) -> None:
    assert api.get("contexts") == ["."]
    first = api.register("s", ONE)
    assert api.register(":.c:s", TWO) == first
    assert api.get("contexts") == [".", ".c"]
    assert api.get("subjects") == [":.c:s", "s"]
    assert api.get("subjects?subjectPrefix=:.c:") == [":.c:s"]
    assert api.get("subjects?subjectPrefix=") == ["s"]  # the default context
    assert api.get(f"schemas/ids/{first}")["schema"] == text(ONE)
    assert api.get(f"schemas/ids/{first}?subject=:.c:s")["schema"] == api.get("subjects/:.c:s/versions/1")["schema"]
    assert api.get("subjects/:.:s/versions") == [1]
    # The same below /contexts, where names need no prefix.
    assert api.get("contexts/:.c:/subjects") == [":.c:s"]
    assert api.get("contexts/:.c:/subjects/s/versions") == [1]
    assert "default" in api.get(f"contexts/:.c:/schemas/ids/{first}")["schema"]
    assert api("PUT", "contexts/.c/config", {"compatibility": "NONE"})[0] == 200
    assert api.get("config/:.c:") == {"compatibilityLevel": "NONE"}
    assert api.register(":.c:s", OTHER) == first + 1
    assert api.register(":.c:t", record(("s", "int")), references=[]) == first + 2


def test_metadata_and_rules_make_another_version(api: Api) -> None:
    api.register("s", ONE, metadata={"properties": {"v": "1"}})
    api.register("s", ONE, metadata={"properties": {"v": "2"}})
    assert api.get("subjects/s/versions") == [1, 2]
    assert api.get("subjects/s/metadata?key=v&value=1")["version"] == 1
    assert api.refused("GET", "subjects/s/metadata?key=v&value=9") == 40403
    assert api.refused("GET", "subjects/nix/metadata?key=v&value=9") == 40401
    api.register("s", ONE)  # says nothing of metadata: the last version's holds
    assert api.get("subjects/s/versions") == [1, 2]
    assert api("POST", "subjects/s", {"schema": text(ONE)})[1]["version"] == 2
    api.register("s", "", metadata={"properties": {"v": "3"}})
    assert api.get("subjects/s/versions/latest")["schema"] == text(ONE)


def test_a_schema_without_metadata_is_found_behind_versions_with_metadata(api: Api) -> None:
    """An older producer registers its schema at each start; it may not be compatible with the newest."""
    api("PUT", "config/s", {"compatibility": "NONE"})
    first = api.register("s", ONE)
    api.register("s", OTHER, metadata={"properties": {"v": "2"}})
    api("PUT", "config/s", {"compatibility": "FULL"})
    assert api.register("s", ONE) == first
    assert api.get("subjects/s/versions") == [1, 2]


def test_import_adds_nothing_of_the_version_before(api: Api) -> None:
    api("PUT", "mode", {"mode": "IMPORT"})
    api("PUT", "config/s", {"defaultMetadata": {"properties": {"owner": "us"}}, "normalize": True})
    metadata = {"properties": {"v": "1"}}
    api.register("s", ONE, id=1, version=1, metadata=metadata)
    plain = '{"type":"string","b":1,"a":2}'
    for _ in range(2):
        api.register("s", plain, id=2, version=2)
    versions = [api.get(f"subjects/s/versions/{version}") for version in (1, 2)]
    assert [one.get("metadata") for one in versions] == [metadata, None]
    assert versions[1]["schema"] == plain
    assert api.refused("POST", "subjects/s/versions", {"schema": " ", "id": 3, "version": 3}) == 42201


def test_an_alias_stands_for_a_subject(api: Api) -> None:
    api.register("s", ONE)
    assert api("PUT", "config/nickname", {"alias": "s"})[0] == 200
    assert api.get("subjects/nickname/versions") == [1]
    assert api.register("nickname", TWO) == 2
    assert api.get("subjects/s/versions") == [1, 2]


def test_normalising(api: Api) -> None:
    one, other = '{"type":"string","b":1,"a":2}', '{"type":"string","a":2,"b":1}'
    first = api.register("s", one)
    assert api.register("s", other) == first + 1
    assert api("POST", "subjects/t/versions?normalize=true", {"schema": one})[1]["id"] == first + 1
    assert api("POST", "subjects/t?normalize=true", {"schema": one})[1]["version"] == 1
    assert api("PUT", "config/u", {"normalize": True})[0] == 200
    assert api.register("u", one) == first + 1


def test_the_reasons_of_an_incompatibility(api: Api) -> None:
    api.register("s", ONE)
    body = {"schema": text(OTHER)}
    assert api("POST", "compatibility/subjects/s/versions/latest", body) == (200, {"is_compatible": False})
    status, answer = api("POST", "compatibility/subjects/s/versions/1?verbose=true", body)
    assert status == 200
    assert "TYPE_MISMATCH" in answer["messages"][0]
    assert "oldSchemaVersion: 1" in answer["messages"][1]
    assert api("POST", "compatibility/subjects/nix/versions/latest", body) == (200, {"is_compatible": True})
    assert api("POST", "compatibility/subjects/nix/versions", body) == (200, {"is_compatible": True})
    changed = {"schema": '{"type": "object"}', "schemaType": "JSON"}
    status, answer = api("POST", "compatibility/subjects/s/versions?verbose=true", changed)
    assert "different schema type" in answer["messages"][0]


def test_associations(api: Api) -> None:
    api.register("s", ONE)
    resource = {
        "resourceName": "t",
        "resourceNamespace": "lkc",
        "resourceId": "id-1",
        "resourceType": "topic",
    }
    body = {**resource, "associations": [{"subject": "s", "associationType": "value", "lifecycle": "STRONG"}]}
    status, answer = api("POST", "associations", body)
    assert status == 200
    assert answer["associations"][0]["subject"] == "s"
    assert api("POST", "associations", body)[0] == 200  # the same again changes nothing
    (found,) = api.get("associations/resources/-/t?resourceType=topic&associationType=value")
    assert (found["subject"], found["resourceId"]) == ("s", "id-1")
    assert api.get("associations/resources/lkc/t?associationType=key") == []
    api.register("u", TWO)
    other = {**resource, "associations": [{"subject": "u", "associationType": "value"}]}
    assert api.refused("POST", "associations", other) == 40901
    assert api("PUT", "associations", other)[0] == 200
    assert [one["subject"] for one in api.get("associations/resources/lkc/t")] == ["u"]
    with_schema = {"subject": "new", "associationType": "key", "schema": {"schema": text(OTHER)}}
    assert api("POST", "associations", {**resource, "associations": [with_schema]})[0] == 200
    assert api.get("subjects/new/versions") == [1]
    assert api.refused("POST", "associations", {**resource, "associations": [{"subject": "nix"}]}) == 40401
    assert api("DELETE", "associations/resources/id-1?associationType=value")[0] == 204
    assert [one["subject"] for one in api.get("associations/resources/lkc/t")] == ["new"]
    assert api("DELETE", "associations/resources/id-1?cascadeLifecycle=true")[0] == 204
    assert api.refused("GET", "subjects/new/versions") == 40401


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("JSON", '{"maximum": 1e400}'),
        (
            "AVRO",
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "double", "default": 1e400}]}',
        ),
        (
            "AVRO",
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "double", "default": NaN}]}',
        ),
    ],
)
@pytest.mark.parametrize("mode", ["READWRITE", "IMPORT"])
def test_a_number_that_cannot_be_written_again_is_refused(api: Api, kind: str, schema: str, mode: str) -> None:
    """What was stored would be no JSON: no client could read it."""
    body = {"schema": schema, "schemaType": kind}
    if mode == "IMPORT":
        api("PUT", "mode", {"mode": mode})
        body |= {"id": 1, "version": 1}
    assert api.refused("POST", "subjects/s/versions", body) == 42201
    assert api.get("subjects") == []


@pytest.mark.parametrize(
    "members",
    [
        {"associations": 7},
        {"associations": [7]},
        {"associations": [{"subject": {"a": 1}}]},
        {"associations": [{"subject": "s", "lifecycle": 7}]},
        {"associations": [{"subject": "s", "associationType": ["value"]}]},
        {"associations": [{"subject": "s", "schema": "text"}]},
        {"associations": [{"subject": "new", "schema": {"schema": text(OTHER)}, "lifecycle": "ODD"}]},
        {"associations": [{"subject": "s"}], "resourceType": {"a": 1}},
        {"associations": [{"subject": "s"}, {"subject": "u", "associationType": "value"}]},
    ],
)
def test_what_is_no_association(api: Api, members: dict[str, Any]) -> None:
    api.register("s", ONE)
    api.register("u", ONE)
    body = {"resourceName": "t", "resourceNamespace": "lkc", "resourceId": "id-1", **members}
    assert api.refused("POST", "associations", body) == 422
    assert api.get("associations/resources/-/t") == []
    assert api.get("subjects") == ["s", "u"]


# -- the log ---------------------------------------------------------------------------------------------


def a_long_life(api: Api) -> None:
    for n in range(3):
        api.register(f"s{n}", record((f"f{n}", "int")), metadata={"properties": {"n": str(n)}})
        api.register(f"s{n}", {**record((f"f{n}", "int")), "doc": "again"})
    api.register(":.c:s", TWO)
    api("PUT", "config", {"compatibility": "FULL"})
    api("PUT", "config/s1", {"compatibility": "NONE"})
    api("DELETE", "config/s1")
    api("PUT", "mode/s2", {"mode": "READONLY"})
    api("DELETE", "subjects/s0/versions/1")
    api("DELETE", "subjects/s0/versions/1?permanent=true")
    api("DELETE", "subjects/s1")
    api("DELETE", "subjects/s1?permanent=true")
    api.register("s1", OTHER)


def everything(state: State) -> Any:
    schemas = [(one.subject, one.version, one.id, one.text, one.deleted, one.guid) for one in state.all_schemas()]
    return schemas, state.configs, state.modes, sorted(state.contexts)


def test_a_compacted_log_folds_to_the_same(api: Api) -> None:
    a_long_life(api)
    with api.storage.state() as state:
        expected = everything(state)
    for log in (api.storage.log, api.storage.compacted()):
        folded = State()
        for key, value in log:
            apply(folded, key, value)
        assert everything(folded) == expected


def test_the_bytes_of_the_log_are_confluents(api: Api) -> None:
    api.register("s", ONE)
    api("PUT", "config", {"compatibility": "FULL"})
    api("PUT", "config/s", {"compatibility": "NONE"})
    api("PUT", "mode/s", {"mode": "READWRITE"})
    api("DELETE", "subjects/s")
    guid = api.get("subjects/s/versions/1?deleted=true")["guid"]
    assert [key.decode() for key, _ in api.storage.log] == [
        '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        '{"keytype":"CONFIG","subject":null,"magic":0}',
        '{"keytype":"CONFIG","subject":"s","magic":0}',
        '{"keytype":"MODE","subject":"s","magic":0}',
        '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        '{"keytype":"MODE","subject":"s","magic":0}',
        '{"keytype":"CONFIG","subject":"s","magic":0}',
    ]
    assert Key.noop().encode() == b'{"keytype":"NOOP","magic":0}'
    values = [None if value is None else json.loads(value) for _, value in api.storage.log]
    assert values == [
        {"subject": "s", "version": 1, "id": 1, "guid": guid, "schema": text(ONE), "deleted": False},
        {"compatibilityLevel": "FULL"},
        {"subject": "s", "compatibilityLevel": "NONE"},
        {"subject": "s", "mode": "READWRITE"},
        {"subject": "s", "version": 1},
        None,
        None,
    ]


def test_what_is_registered_is_not_judged_by_checks_that_came_later(api: Api) -> None:
    """A default that is no value of its type is refused today; an old registry took it."""
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}
    value = {"subject": "s", "version": 1, "id": 1, "schema": text(old), "deleted": False}
    api.storage.append(Key.schema("s", 1).encode(), json.dumps(value).encode())
    assert api.refused("POST", "subjects/t/versions", {"schema": text(old)}) == 42201
    assert api.register("s", old) == 1  # its producers go on
    assert api("POST", "subjects/s", {"schema": text(old)})[1]["version"] == 1
    assert api.refused("POST", "subjects/s", {"schema": text(old).replace("R", "Q")}) == 42201
    assert api.refused("POST", "subjects/s", {"schema": '{"$id": 5}', "schemaType": "JSON"}) == 42201
    assert api.register("s", TWO) == 2
    api("PUT", "mode/u", {"mode": "IMPORT"})
    assert api.register("u", old, id=1, version=1) == 1
    broken = {**value, "version": 3, "id": 3, "schema": "{"}
    api.storage.append(Key.schema("s", 3).encode(), json.dumps(broken).encode())
    status, answer = api("POST", "subjects/s/versions", {"schema": text(ONE)})
    assert (status, answer["error_code"]) == (422, 42201)
    assert "version 3 of subject 's', which is registered, cannot be parsed" in answer["message"]


def test_a_log_that_another_registry_wrote(api: Api) -> None:
    """Keys in an older order, members we do not know, and records of no registry."""
    old_key = b'{"magic":0,"keytype":"CONFIG","subject":null}'
    api.storage.append(old_key, b'{"compatibilityLevel":"NONE"}')
    api.storage.append(
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        b'{"subject":"s","version":1,"id":5,"schema":"{ \\"type\\" : \\"int\\" }","deleted":false,"future":1}',
    )
    assert api.register("s", '"int"') == 5  # stored in a form of its own, but the same
    assert api.register("s", '"string"') == 6
    api("DELETE", "subjects/s/versions/1")
    assert json.loads(api.storage.log[-1][1] or b"")["future"] == 1
    api("DELETE", "config")
    assert api.storage.log[-1] == (old_key, None)  # or compaction would keep it
    assert api.get("config") == {"compatibilityLevel": "BACKWARD"}


def test_associations_are_in_the_log_as_confluents_registry_has_them(api: Api) -> None:
    api.register("s", ONE)
    resource = {
        "resourceName": "t",
        "resourceNamespace": "lkc",
        "resourceId": "id-1",
        "resourceType": "topic",
    }
    theirs = {
        "subject": "s",
        "guid": "8c8e2a5e-7a0a-4d0a-9b1c-0d7b6f2a1f11",
        "tenant": "default",
        **resource,
        "associationType": "value",
        "lifecycle": "WEAK",
        "frozen": False,
    }
    key = (
        b'{"keytype":"ASSOC","tenant":"default","resourceName":"t","resourceNamespace":"lkc","resourceType":"topic",'
        b'"associationType":"value","subject":"s","magic":0}'
    )
    api.storage.append(key, json.dumps(theirs).encode())
    (found,) = api.get("associations/resources/lkc/t")
    assert found["guid"] == theirs["guid"]
    assert api("DELETE", "associations/resources/id-1")[0] == 204
    assert api.storage.log[-1] == (key, None)
    body = {**resource, "associations": [{"subject": "s", "associationType": "value", "lifecycle": "WEAK"}]}
    assert api("POST", "associations", body)[0] == 200
    written, value = api.storage.log[-1]
    assert written == key
    assert json.loads(value or b"") == {**theirs, "guid": json.loads(value or b"")["guid"]}


def test_a_reference_to_the_latest_version_in_a_log_that_confluents_registry_wrote(api: Api) -> None:
    """Ours stores its number."""
    api.register("money", record(("cents", "long"), name="Money"))
    order = record(("price", "Money"), name="Order")
    reference = {"name": "Money", "subject": "money", "version": -1}
    value = {
        "subject": "s",
        "version": 1,
        "id": 9,
        "schema": text(order),
        "references": [reference],
        "deleted": False,
    }
    api.storage.append(Key.schema("s", 1).encode(), json.dumps(value).encode())
    assert "cents" in api.get("schemas/ids/9?format=resolved")["schema"]
    assert api.refused("POST", "subjects/s/versions", {"schema": text(record(("price", "int"), name="Order"))}) == 409


# -- as Confluent's registry answers ---------------------------------------------------------------------------


def test_a_version_of_no_subject_is_a_version_that_is_not_there(api: Api) -> None:
    body = {"schema": '"int"'}
    assert api.refused("POST", "compatibility/subjects/nope/versions/1", body) == 40402
    assert api("POST", "compatibility/subjects/nope/versions/latest", body) == (200, {"is_compatible": True})
    assert api("POST", "compatibility/subjects/nope/versions", body) == (200, {"is_compatible": True})
    assert api.refused("GET", "subjects/nope/versions/1") == 40401


@pytest.mark.parametrize("version", ["", "/latest"])
def test_an_invalid_schema_is_not_compatible_with_nothing(api: Api, version: str) -> None:
    path, body = f"compatibility/subjects/nope/versions{version}", {"schema": '{"type": "nix"}'}
    assert api.refused("POST", path, body) == 42201
    status, answer = api("POST", f"{path}?verbose=true", body)
    assert (status, answer["is_compatible"]) == (200, False)
    assert "Undefined schema: nix" in answer["messages"][0]
    half = api("POST", f"{path}?verbose=true", {"schema": r'"\ud800"'})  # of a surrogate pair
    assert (half[0], r"\ud800" in half[1]["messages"][0]) == (200, True)
    assert api.refused("POST", path, {"schema": ""}) == 42201


def test_types_of_schemas_are_always_told_and_are_case_sensitive(api: Api) -> None:
    avro, other = api.register("a", '"int"'), api.register("j", "{}", schemaType="JSON")
    assert api.get(f"schemas/ids/{avro}")["schemaType"] == "AVRO"
    assert api.get(f"schemas/ids/{other}")["schemaType"] == "JSON"
    assert {one["schemaType"] for one in api.get("schemas")} == {"AVRO", "JSON"}
    assert api("POST", "subjects/a", {"schema": '"int"'})[1]["schemaType"] == "AVRO"
    assert api.refused("POST", "subjects/x/versions", {"schema": '"int"', "schemaType": "avro"}) == 42201


def test_a_schema_is_found_with_attributes_that_are_dropped(api: Api) -> None:
    schema_id = api.register("s", {"type": "int", "name": "n"})
    assert api.register("s", '"int"') == schema_id
    assert api("POST", "subjects/s", {"schema": '{"type": "int", "doc": "d"}'})[1]["id"] == schema_id


def test_a_key_that_is_nested_without_end_is_no_registrys() -> None:
    assert Key.parse(b"[" * 200_000) is None
