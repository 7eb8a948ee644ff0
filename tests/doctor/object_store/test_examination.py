"""The whole examination: what it leaves, and what it never touches."""

from __future__ import annotations

from tests.doctor.object_store.lying import LyingS3

GOOD = {
    "endpoint", "endpoint clock", "endpoint rights", "conditional puts", "read after write", "listing after write",
    "endpoint clean-up",
}  # fmt: skip


def test_a_good_server_has_one_good_finding_of_each_kind_and_keeps_nothing(examined):
    with LyingS3() as server:
        server.objects["some/prefix/events/_delta_log/0.json"] = b"a version"
        found = examined(server)
        assert {*found} == GOOD
        assert {finding.severity.value for finding in found.values()} == {"good"}
        assert {*server.objects} == {"some/prefix/events/_delta_log/0.json"}
        assert found["endpoint clean-up"].figures == {"keys": 71}


def test_every_key_is_in_one_folder_beside_the_table(examined):
    with LyingS3() as server:
        examined(server)
        folders = {key.rpartition("/")[0] for _, key in server.asked if key}
    (folder,) = folders
    assert folder.startswith("some/prefix/doctor-")
    assert len(folder) == len("some/prefix/doctor-") + 16


def test_a_store_without_a_prefix_is_examined_too(examined):
    assert {finding.severity.value for finding in examined(url="s3://bucket").values()} == {"good"}
