"""Keys on disk: made once, readable by their owner alone, and needed wherever weights could move a robot."""

import pwd

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from engram.app import cli
from engram.core.errors import InvalidInputError
from engram.learning.weights.keys import (
    fingerprint,
    keys_for,
    load_private_key,
    load_public_key,
    make_signing_key,
    trusted_keys,
)


def test_a_key_pair_is_the_owner_s_alone_and_made_only_once(tmp_path):
    public = make_signing_key(tmp_path)
    path = tmp_path / "signing.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_private_key(path).public_key() == public == load_public_key(tmp_path / "signing.pub.pem")
    with pytest.raises(InvalidInputError, match=r"signing.pem exists"):
        make_signing_key(tmp_path)
    path.chmod(0o644)
    with pytest.raises(InvalidInputError, match=r"others may read it \(mode 644\); chmod 600 it"):
        load_private_key(path)


def test_a_key_of_another_kind_is_named(tmp_path):
    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "k.pem").write_bytes(other)
    (tmp_path / "k.pem").chmod(0o600)
    with pytest.raises(InvalidInputError, match="a ECPrivateKey, expected an Ed25519 private key"):
        load_private_key(tmp_path / "k.pem")
    with pytest.raises(InvalidInputError, match="`engram keys new` makes one"):
        load_private_key(tmp_path / "none.pem")


@pytest.mark.parametrize(("accept", "simulated"), [("approved", False), ("approved", True), ("any", False)])
def test_no_weights_are_accepted_without_a_key_but_candidates_in_simulation(tmp_path, accept, simulated):
    for path in ("", str(tmp_path), str(tmp_path / "nowhere")):
        with pytest.raises(InvalidInputError, match=f"accept is '{accept}', but no key is trusted .*engram keys new"):
            keys_for(accept, path, simulated=simulated)
    assert keys_for("any", "", simulated=True) == keys_for("none", "", simulated=False) == {}


def test_the_command_makes_trusts_and_lists(tmp_path, capsys):
    robot = ["--folder", str(tmp_path / "keys")]
    assert cli.main(["keys", "show", *robot]) == 0
    assert "signs:   no key\ntrusted: no key" in capsys.readouterr().out
    assert cli.main(["keys", "new", *robot]) == 0
    name = fingerprint(load_public_key(tmp_path / "keys" / "signing.pub.pem"))
    assert capsys.readouterr().out.startswith(f"{name}  {tmp_path}/keys/signing.pem")
    assert cli.main(["keys", "trust", *robot]) == 0
    assert list(trusted_keys(tmp_path / "keys" / "trusted")) == [name]
    assert list(keys_for("approved", str(tmp_path / "keys" / "trusted"), simulated=False)) == [name]
    capsys.readouterr()
    assert cli.main(["keys", *robot]) == 0
    assert f"signs:   {name}" in (said := capsys.readouterr().out) and f"trusted: {name}" in said
    assert cli.main(["keys", "new", *robot]) == 2  # it would orphan what the old key signed
    assert cli.main(["keys", "trust", str(tmp_path / "missing.pem"), *robot]) == 2


@pytest.mark.parametrize("command", ["keys", "plot", "weights"])
def test_a_user_without_a_home_folder_is_told_so(command, capsys, monkeypatch):
    def unknown(_):
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cli.main([command]) == 2
    said = f"engram {command}: ~/.local/share/engram/robot0/keys: Could not determine home directory"
    assert said in capsys.readouterr().err
