"""docs/operate/security.md: each promise names its tests, and each finding is defended or told as open."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.markdown import DOCS
from tests.named_tests import missing, runs_rarely

ROOT = DOCS.parent
PAGE = (DOCS / "operate" / "security.md").read_text(encoding="utf-8")
_TEST = re.compile(r"`((?:tests/[\w/]+\.py|…)(?:::\w+)?)`")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)

INDEX = "tests/integration/index"
SERVER = "tests/integration/server"
LIMITS = f"{SERVER}/test_open_doors_limits.py"
CONNECTORS = "tests/unit/dataplane/confined"
CONFINED = "tests/unit/process/confinement/test_confinement.py"
TAGS = "tests/unit/apps/server/console/test_limits.py"
# The findings of the security reviews, with the tests of each; or, if it is open, how a sentence of the section "What
# is not defended" begins or goes on.
FINDINGS: dict[str, tuple[str, ...]] = {
    "F1 files and variables by references": (
        f"{SERVER}/test_open_doors.py::test_no_file_and_no_variable_leaves_by_a_definition",
    ),
    "F2 code by an Iceberg catalog": (
        f"{SERVER}/test_open_doors.py::test_a_catalog_s_answer_runs_no_code",
        f"{SERVER}/test_open_doors.py::test_a_table_s_properties_run_no_code_and_open_no_file",
    ),
    "F3 forms of strangers": (f"{LIMITS}::test_a_form_of_a_stranger_is_bounded_before_it_is_read",),
    "F4 JSON in forms": (f"{LIMITS}::test_json_in_a_form_has_the_bounds_of_the_api",),
    "F5 modes, owners and times of files": (
        f"{CONFINED}::test_a_function_changes_nothing_about_files_but_their_content",
    ),
    "F6 functions in one process": (
        "tests/unit/compute/extractors/test_pool.py::test_a_function_reaches_no_function_of_another_commit",
        "tests/unit/dataplane/streams/functions/test_children.py::test_a_function_reaches_no_function_of_another_job",
        "tests/unit/dataplane/sources/functions/test_calls.py::test_a_function_reaches_no_other_function_of_a_webhook",
        "The functions of one commit share their processes",
    ),
    "F7 branches as limits": (f"{SERVER}/test_access.py::test_a_branch_is_a_limit",),
    "F8 roles for other clouds": (
        "tests/unit/offline/test_addresses.py::test_a_role_of_aws_opens_no_other_store_with_the_server_s_own_rights",
        "tests/unit/offline/test_addresses.py::test_only_listed_roles_are_assumed",
    ),
    "F9 one replica": (
        "tests/integration/topics/test_secured.py::test_brokers_decide_how_many_replicas_there_are",
        "tests/integration/topics/test_replicas.py::test_no_acknowledged_event_is_lost_with_the_disk_of_a_leader",
    ),
    "F10 exponential patterns": (f"{LIMITS}::test_no_value_takes_exponential_time_or_grows_without_bound",),
    "F11 shared nodes": (f"{LIMITS}::test_a_small_definition_cannot_become_a_large_one",),
    "F12 network of connectors": (
        f"{SERVER}/test_reach.py::test_no_source_reaches_the_server_s_own_machine",
        f"{SERVER}/test_reach.py::test_no_source_reaches_a_cloud_s_metadata_service",
        f"{SERVER}/test_reach.py::test_the_platform_s_own_services_are_no_sources",
        f"{SERVER}/test_reach.py::test_the_server_s_identity_is_shown_for_no_definition_without_keys",
        f"{CONNECTORS}/test_process.py::test_files_and_variables_of_the_platform_are_out_of_reach",
        f"{CONNECTORS}/test_process.py::test_no_way_to_connect_leads_to_a_service_of_the_platform",
        f"{CONNECTORS}/test_process.py::test_a_process_that_tells_what_cannot_be_is_ended_and_nothing_of_it_is_taken",
    ),
    "F13 tags of definitions": (
        "tests/unit/apps/server/test_definitions.py::test_what_may_not_be_seen_is_neither_listed_nor_described",
        f"{TAGS}::test_each_part_of_the_status_leaves_out_what_is_private",
        f"{TAGS}::test_the_archive_s_tables_are_those_of_datasets_that_may_be_seen",
        f"{TAGS}::test_erasures_are_told_to_who_may_see_their_dataset",
    ),
    "F14 tags on the way": (
        "tests/unit/graph/test_lineage.py::test_tags_of_fields_follow_their_columns",
        f"{TAGS}::test_dead_letters_are_listed_and_shown_to_who_may_read_their_rows",
    ),
    "F15 memory of functions": (
        f"{CONFINED}::test_functions_die_first_when_the_memory_of_the_machine_runs_out",
        "tests/unit/process/confinement/test_values.py::test_no_message_takes_more_memory_than_was_counted",
    ),
    "F16 no TLS": ("tests/unit/apps/server/test_tls.py::test_clients_verify_the_server",),
    "F17 ports taken by others": (
        "tests/integration/stack/test_parts.py::test_an_impostor_on_the_port_of_postgres_gets_no_password",
        "tests/integration/stack/test_parts.py::test_an_impostor_on_the_port_of_kafka_gets_no_password",
        "may take a port of the embedded Kafka or Postgres",
    ),
    "F18 the token as a cookie": (
        "tests/integration/server/test_sessions.py::test_a_session_is_no_token_and_all_servers_know_it_at_once",
        "tests/unit/apps/server/console/test_pages.py::test_a_cookie_has_the_id_of_a_session_that_scripts_and_other_sites_cannot_read",
    ),
    "F19 capabilities": (f"{CONFINED}::test_no_capability_is_left_but_to_read_pythons_files",),
    "F20 the folder of the start": (f"{CONFINED}::test_the_folder_in_which_the_platform_was_started_is_out_of_reach",),
    "F21 repeated requests read topics": (
        "tests/unit/dataplane/ingest/test_requests.py::test_a_flood_of_repeated_requests_takes_no_threads_of_others",
        "tests/unit/dataplane/ingest/test_requests.py::test_no_header_has_topics_read_for_longer_than_a_day",
    ),
    "F22 secrets on a command line": (
        "tests/integration/spark/test_gateway.py::test_no_setting_of_spark_is_in_the_command",
        "All users of the machine can read the command lines",
    ),
    "L1 output of functions": (f"{CONFINED}::test_what_was_printed_into_the_log_cannot_be_overwritten",),
    "L2 a silent caller of the port of secrets": (
        "tests/unit/process/secrets/test_port.py::test_callers_who_stay_silent_keep_nobody_from_secrets",
    ),
    "L3 health for strangers": (
        "tests/unit/apps/server/test_answers.py::test_only_callers_with_a_token_get_the_reasons_of_bad_health",
    ),
    "L4 a tool that runs code": (
        "tests/unit/apps/mcp/test_serving.py::test_only_the_tool_that_runs_code_is_not_announced_as_one_that_reads",
    ),
    "L5 folders of others": (
        "tests/unit/apps/stack/test_folder.py::test_a_folder_of_another_user_is_refused_with_the_remedy",
    ),
    "L6 a token to whoever listens": (
        "tests/unit/client/test_discovery.py::test_the_token_of_the_environment_goes_to_nobody_without_an_address",
    ),
    "L7 lost counts of refusals": (
        "tests/unit/apps/server/test_access.py::test_refusals_that_could_not_be_written_are_written_later",
    ),
    "L8 positions ahead of topics": (
        f"{INDEX}/test_worker.py::test_records_that_a_broker_lost_are_told_even_if_others_are_in_their_places",
        "tests/faults/test_power_of_topics.py::test_all_readers_of_a_topic_tell_what_it_has_lost_and_go_on",
        "Positions of sources in Postgres don't go back",
    ),
    "L9 archives after a power failure": (
        "tests/faults/test_power.py::test_what_the_archive_says_that_it_has_survives",
    ),
    "L10 records that indexes skip": (
        "tests/integration/index/test_worker.py::test_a_record_that_cannot_be_read_or_applied_becomes_a_dead_letter",
    ),
    "L11 places that keep erased rows": (
        "tests/unit/apps/server/erasure/test_remaining.py::test_the_places_of_every_dataset",
    ),
    "L12 passwords in definitions": (
        "tests/unit/graph/secrets/test_references.py::test_a_password_in_clear_is_warned_of_and_never_shown",
    ),
    "L13 clones by tags of another commit": (
        "tests/integration/state/test_state.py::test_a_clone_shares_all_and_goes_its_own_way",
    ),
    "L14 root in the containers": (
        "tests/unit/deploy/test_board.py::test_no_container_runs_as_root_or_with_a_password_that_everybody_knows",
        "are named by versions",
    ),
    "L15 Delta prefixes": (f"{SERVER}/test_reach.py::test_a_prefix_leads_out_of_no_bucket_and_no_folder",),
    "L16 connections held by strangers": (
        "tests/unit/apps/server/test_connections.py::test_a_stranger_who_holds_connections_keeps_nobody_from_answers",
        "tests/unit/apps/server/test_connections.py::test_strangers_of_many_addresses_keep_nobody_from_answers",
    ),
    "L17 a key that wasn't written": ("tests/faults/test_power.py::test_the_keys_of_secrets_survive",),
    "L18 calls that nobody thought of": (
        "tests/unit/process/confinement/test_seccomp.py::test_no_call_is_allowed_that_no_table_has",
    ),
}


def _section(title: str) -> str:
    parts = _SECTION.split(PAGE)
    return parts[parts.index(title) + 1]


def _shown(promise: str) -> Iterator[str]:
    """Yield the tests in the last column of a row."""
    path = ""
    for test in _TEST.findall(promise.rstrip().removesuffix("|").rpartition("|")[2]):
        # An ellipsis stands for the file of the test before.
        named = path + test[1:] if test.startswith("…") else test
        path = named.partition("::")[0]
        yield named


def _promises() -> list[str]:
    rows = [line for line in _section("What is defended").splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith("| against ")]


@pytest.mark.parametrize("promise", _promises(), ids=lambda promise: promise[2:60])
def test_a_promise_names_tests_that_exist(promise: str) -> None:
    found = list(_shown(promise))
    assert any("::" in test for test in found), f"name a test, `tests/….py::test_…`, in the last column of {promise}"
    for test in found:
        assert missing(test) is None


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.partition(" ")[0])
def test_a_finding_is_defended_by_tests_or_told_as_open(finding: str) -> None:
    for shown in FINDINGS[finding]:
        if shown.startswith("tests/"):
            assert missing(shown) is None, f"{finding}: {missing(shown)}"
        else:
            assert shown in _section("What is not defended"), (
                f"security.md no longer says {shown!r}; if {finding!r} is defended now, name its tests here"
            )


def test_reviewers_are_told_which_of_these_tests_do_not_run_at_each_change() -> None:
    review = (DOCS / "operate" / "security-review.md").read_text(encoding="utf-8").rpartition("## How it is tested")[2]
    told = re.findall(r"^\* `(tests/[^`]+)`", review, re.MULTILINE)
    rare = {test for promise in _promises() for test in _shown(promise) if runs_rarely(test)}
    covered = {each: {test for test in rare if test.startswith(each)} for each in told}
    assert rare == set().union(*covered.values()), "docs/operate/security-review.md doesn't name all of these tests"
    assert all(covered.values()), f"these run at each change, or show no promise: {covered}"


def test_no_finding_is_left_out() -> None:
    expected = [*(f"F{number}" for number in range(1, 23)), *(f"L{number}" for number in range(1, 19))]
    assert [finding.partition(" ")[0] for finding in FINDINGS] == expected


def test_a_name_of_no_test_is_found() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert missing(f"{here}::test_no_finding_is_left_out") is None
    assert missing(f"{here}::test_of_nothing") == f"{here} has no test test_of_nothing"
    assert missing("tests/docs/test_nothing.py") == "there is no file tests/docs/test_nothing.py"
