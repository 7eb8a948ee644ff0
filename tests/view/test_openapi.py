"""The description of the API names the endpoints that there are, their parameters and their answers."""

from __future__ import annotations

import json

from starlette.routing import Route

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.view import application
from tailrace.view.application import Viewer
from tailrace.view.leases import ServedStore

DESCRIBED = json.loads(application.description())


def test_it_describes_the_routes_and_no_others(few_store):
    viewer = Viewer([ServedStore(choose(None, few_store), SystemClock())], None)
    routes = {
        (route.path, method)
        for route in viewer.routes
        if isinstance(route, Route) and route.path.startswith("/api/")
        for method in route.methods - {"HEAD"}
    }
    assert routes == {
        (path, method.upper()) for path, each in DESCRIBED["paths"].items() for method in each
    }


def test_every_reference_leads_somewhere():
    def references(node):
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for each in node.values():
                yield from references(each)
        elif isinstance(node, list):
            for each in node:
                yield from references(each)

    found = set(references(DESCRIBED))
    assert found
    schemas = DESCRIBED["components"]["schemas"]
    assert {each.removeprefix("#/components/schemas/") for each in found} <= schemas.keys()


def test_parameters_that_are_described_are_taken_and_others_refused(viewer):
    for path, each in DESCRIBED["paths"].items():
        if "get" not in each or path.endswith(("/openapi.json", "/live", "/export")):
            continue
        name = path.removeprefix("/api/v1/")
        known = {p["name"]: p for p in each["get"]["parameters"]}
        given = {
            "from": 1,
            "to": 2,
            "pixels": 3,
            "after": 4,
            "name": "x",
            "source": "sim",
            "session": "aa",
            "offset": 10,
        }
        required = {n: given[n] for n, p in known.items() if p["required"]}
        assert viewer.ask(name, **required).status == 200, name
        refused = viewer.ask(name, **required, bogus=1)
        assert (refused.status, "bogus" in refused.json["error"]["what"]) == (400, True), name
        for word in required:
            less = {key: value for key, value in required.items() if key != word}
            assert viewer.ask(name, **less).status == 400, (name, word)


def test_the_server_gives_the_description(viewer):
    assert viewer.get("openapi.json") == DESCRIBED
