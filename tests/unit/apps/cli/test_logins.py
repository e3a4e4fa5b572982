"""Sign-ins that the command line keeps: for one server each, private, and renewed before they end."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.apps.cli.logins import FILE, Login, Logins, origin
from caraway.apps.cli.remote import ServerOptions
from caraway.client.discovery import DEFAULT_URL, ServerAddress
from caraway.errors import UnauthenticatedError, UnavailableError

LOGIN = Login(
    issuer="https://login.example.com",
    client_id="cli",
    token_endpoint="https://login.example.com/token",
    revocation_endpoint="",
    access_token="first",
    refresh_token="r1",
    expires_at=1_000.0,
)
URL = "https://caraway.example.com"


def nobody(login: Login) -> Login:
    raise AssertionError(f"{login.issuer} is asked")


def test_a_token_is_for_the_server_of_its_sign_in_only(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "caraway", clock=lambda: 0.0)
    assert logins.token(URL, nobody) == ""
    logins.keep(f"{URL}/console?x", LOGIN)
    assert logins.token(URL, nobody) == "first"
    for other in ("http://caraway.example.com", f"{URL}:8443", f"{URL}.evil.example", "https://evil.example"):
        assert logins.token(other, nobody) == "", other
    assert origin("https://user:secret@caraway.example.com/x") == URL
    assert logins.forget(URL) == LOGIN
    assert (logins.forget(URL), logins.token(URL, nobody)) == (None, "")


def test_the_file_is_private_whatever_the_mask_of_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "caraway"
    Logins(folder).keep(URL, LOGIN)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_token_is_renewed_a_minute_before_its_end_and_the_new_one_is_kept(tmp_path: Path) -> None:
    now = [939.0]
    logins = Logins(tmp_path, clock=lambda: now[0])
    logins.keep(URL, LOGIN)
    logins.keep("https://other", LOGIN)
    assert logins.token(URL, nobody) == "first"
    now[0] = 940.0
    assert logins.token(URL, lambda login: replace(login, access_token="second", expires_at=2_000.0)) == "second"
    assert Logins(tmp_path, clock=lambda: now[0]).token(URL, nobody) == "second"
    assert logins.of("https://other") == LOGIN


def test_a_sign_in_that_has_ended_is_told_and_one_that_cannot_be_renewed_is_sent_as_it_is(tmp_path: Path) -> None:
    logins = Logins(tmp_path, clock=lambda: 5_000.0)
    logins.keep(URL, LOGIN)

    def refuse(login: Login) -> Login:
        raise UnauthenticatedError(f"{login.issuer} refuses")

    with pytest.raises(UnauthenticatedError, match="refuses"):
        logins.token(URL, refuse)
    # The server says that it has ended.
    logins.keep(URL, replace(LOGIN, refresh_token=""))
    assert logins.token(URL, nobody) == "first"


def test_a_token_goes_to_a_server_that_was_chosen_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of the machine may listen at the default address while no stack runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("CARAWAY_URL", "CARAWAY_TOKEN", "CARAWAY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    Logins().keep(DEFAULT_URL, replace(LOGIN, refresh_token=""))
    assert ServerOptions().address == ServerAddress(DEFAULT_URL, "")
    assert ServerOptions(url=DEFAULT_URL).address == ServerAddress(DEFAULT_URL, "first")
    monkeypatch.setenv("CARAWAY_URL", DEFAULT_URL)
    assert ServerOptions().address == ServerAddress(DEFAULT_URL, "first")


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"https://x": {"issuer": 1}}', b"\xff"])
def test_a_damaged_file_is_told_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UnavailableError, match="caraway login"):
        Logins(tmp_path).token("https://x", nobody)
