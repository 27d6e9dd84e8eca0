"""A checkpoint runs no code of its own: no class that it names, no module, and no Python file of a repository."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoProcessor, dynamic_module_utils

from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.policies import load_policy
from engram.policies.backbones.loading import backbone_processors, wrapped
from engram.policies.checkpoint import export
from engram.policies.foreign_code import check_importable
from engram.policies.opening import checkpoint_folder, open_policy
from engram.policies.training.train import main
from engram.policies.training.train_config import TrainConfig
from tests.policies.synthetic import make_dataset
from tests.policies.test_train import MODEL
from tests.policies.tiny import tiny_vla
from tests.policies.tiny_lerobot import save_tiny

FILES = ("policy_preprocessor.json", "policy_postprocessor.json")
EVIL = """
import pathlib
pathlib.Path({mark!r}).touch()
from engram.policies.sequence_memory import SequenceMemory
class Mine(SequenceMemory):
    pass
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_folder("base"), tmp_path / "copy"))


def add_step(folder: Path, file: str, step: dict) -> None:
    kept = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**kept, "steps": [*kept["steps"], step]}))


def touching(mark: Path) -> dict:
    return {"class": "subprocess.Popen", "config": {"args": ["touch", str(mark)]}}


def on_the_hub(cache: Path, folder: Path, monkeypatch) -> str:
    """Put ``folder`` where what was fetched from the hub is; return its name there."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    fetched = cache / "models--somebody--evil"
    shutil.copytree(folder, fetched / "snapshots" / ("0" * 40))
    (fetched / "refs").mkdir()
    (fetched / "refs" / "main").write_text("0" * 40)
    return "somebody/evil"


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", ["ours", "act"])
@pytest.mark.parametrize("hub", [False, True])
def test_a_class_that_a_processor_names_is_never_called(kind, file, hub, copy, tmp_path, monkeypatch):
    folder = copy if kind == "ours" else save_tiny("act", tmp_path / "act")
    add_step(folder, file, touching(tmp_path / "PWNED"))
    name = on_the_hub(tmp_path / "hub", folder, monkeypatch) if hub else folder
    with pytest.raises(WeightsError, match=rf"{file}: step \d names the class 'subprocess.Popen'; .*device_processor"):
        open_policy(name)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("file", FILES)
def test_a_class_that_a_backbone_s_processor_names_is_never_called(file, tmp_path):
    folder = save_tiny("act", tmp_path / "act")  # its processors are LeRobot's, as those of a backbone
    config = json.loads((folder / "config.json").read_text())
    features = {key: config[key] for key in ("input_features", "output_features")}
    (folder / "config.json").write_text(json.dumps({"type": "smolvla", **features}))
    add_step(folder, file, touching(tmp_path / "PWNED"))
    with pytest.raises(WeightsError, match=r"names the class 'subprocess.Popen'"):
        backbone_processors(wrapped(str(folder)))
    assert not (tmp_path / "PWNED").exists()


def test_a_training_calls_no_class_that_the_policy_it_starts_from_names(tmp_path):
    dataset = make_dataset(tmp_path / "data", episodes=2, length=8)
    fields = {"steps": 1, "batch_size": 4, "n_action_steps": 2, "image_size": 32, "model": MODEL}
    first = main(TrainConfig(dataset=str(dataset), out=str(tmp_path / "first"), **fields))
    add_step(first, FILES[0], touching(tmp_path / "PWNED"))
    with pytest.raises(WeightsError, match=r"names the class 'subprocess.Popen'"):
        main(TrainConfig(dataset=str(dataset), out=str(tmp_path / "second"), start_from=str(first), **fields))
    assert not (tmp_path / "PWNED").exists()


def test_a_step_that_nobody_registered_is_unknown(copy):
    add_step(copy, FILES[0], {"registry_name": "device_procesor"})
    with pytest.raises(UnknownNameError, match=r"step 6 in .*'device_procesor'; did you mean 'device_processor'"):
        open_policy(copy)


@pytest.mark.parametrize("state", ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "state.bin", 3])
def test_a_state_that_is_no_safetensors_file_beside_the_processor_is_refused(copy, state):
    add_step(copy, FILES[0], {"registry_name": "to_batch_processor", "config": {}, "state_file": state})
    with pytest.raises(WeightsError, match=r"state_file of step 6: .*, expected a \.safetensors file beside it"):
        open_policy(copy)


def opened_elsewhere(folder: Path, cwd: Path, **environment: str) -> str:
    """Return what a process started in ``cwd`` says that opens ``folder``."""
    script = "import sys; from engram.policies.opening import open_policy; open_policy(sys.argv[1])"
    known = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    paths = [str(Path(place).absolute()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    known["PYTHONPATH"] = os.pathsep.join([*paths, *environment.values()])
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(command, cwd=cwd, env=known, capture_output=True, text=True, timeout=300).stderr


@pytest.mark.parametrize("module", ["owned", "evil.owned"])
def test_a_memory_of_the_working_folder_is_imported_only_where_the_user_allows_it(module, copy, tmp_path):
    mark, folder = tmp_path / "PWNED", copy.rename(tmp_path / "evil")
    (tmp_path / f"{module.replace('.', '/')}.py").write_text(EVIL.format(mark=str(mark)))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "memory": f"{module}:Mine"}))
    top = module.partition(".")[0]
    told = f"policy {folder}: memory '{module}:Mine': no module '{top}' is installed or on PYTHONPATH"
    assert told in opened_elsewhere(folder, tmp_path)
    assert not mark.exists()
    opened_elsewhere(folder, tmp_path, allowed=str(tmp_path))
    assert mark.exists()


def test_a_package_without_init_is_not_extended_by_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "installed" / "spread").mkdir(parents=True)
    (tmp_path / "here" / "spread").mkdir(parents=True)
    (tmp_path / "here" / "spread" / "owned.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InvalidInputError, match="nothing from the working folder"):
        check_importable("spread.owned:Mine", "memory")


def test_a_memory_of_one_s_own_is_refused_for_a_policy_on_the_hub(tmp_path, monkeypatch):
    ours = tiny_vla()
    export(tmp_path / "ours", ours.network, ours.preprocess, ours.postprocess, {})
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    (tmp_path / "ours" / "config.json").write_text(json.dumps({**config, "memory": f"{__name__}:Path"}))
    name = on_the_hub(tmp_path / "hub", tmp_path / "ours", monkeypatch)
    with pytest.raises(InvalidInputError, match=r"no code is imported for a policy on the hub: download it"):
        load_policy(name)


def test_a_training_with_a_memory_that_no_checkpoint_could_name_is_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "my_traces.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"memory 'my_traces:Mine': no module 'my_traces' is installed"):
        main(TrainConfig(dataset="data", memory="my_traces:Mine", window=4))


def test_python_files_of_a_repository_are_not_run(tmp_path, monkeypatch):
    """What a step such as action_tokenizer_processor asks transformers for, with a name of the checkpoint's."""
    monkeypatch.setattr(dynamic_module_utils, "get_class_in_module", dynamic_module_utils.get_class_in_module)
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    repository = tmp_path / "evil"
    repository.mkdir()
    (repository / "processor_config.json").write_text(json.dumps({"auto_map": {"AutoProcessor": "owned.Mine"}}))
    (repository / "owned.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\nclass Mine:\n    pass\n")
    folder = save_tiny("act", tmp_path / "act")
    step = {"registry_name": "action_tokenizer_processor", "config": {"action_tokenizer_name": str(repository)}}
    add_step(folder, FILES[0], step)
    with pytest.raises(WeightsError, match=r"Mine: is Python code of the repository .*Engram runs no code"):
        open_policy(folder)
    with pytest.raises(InvalidInputError, match="Engram runs no code"):  # and later, when a step first needs it
        AutoProcessor.from_pretrained(str(repository), trust_remote_code=True)
    assert not (tmp_path / "PWNED").exists()


def test_lerobot_s_other_steps_are_taken_in_a_policy_of_ours(copy, tmp_path):
    add_step(copy, FILES[0], {"registry_name": "torch2numpy_action_processor", "config": {"squeeze_batch_dim": False}})
    before = open_policy(copy).preprocess
    assert type(before.steps[-1]).__name__ == "Torch2NumpyActionProcessorStep"
