"""Our policies need little of LeRobot; whoever needs the rest finds it as always."""

import json
import subprocess
import sys

HEAVY = ("transformers", "torchvision", "sklearn", "datasets", "diffusers", "lerobot.policies.act", "lerobot.envs")

SCRIPT = """
import hashlib, json, sys
first = sys.argv[1]
if first == "lerobot":
    import lerobot.policies, lerobot.processor, lerobot.configs
from engram.policies import VlaPolicy, load_policy
from engram.runtime.factories import black_observation
from engram.policies.opening import checkpoint_folder

ours = load_policy("base")
heavy = [name for name in sys.argv[2:] if name in sys.modules]

from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
folder = checkpoint_folder("base")
config = PreTrainedConfig.from_pretrained(folder)
network = get_policy_class(config.type).from_pretrained(folder, strict=True)
pipelines = make_pre_post_processors(config, str(folder))
lerobots = VlaPolicy(network, *pipelines, ours.kinematics, version=ours.version)

def chunk(policy):
    policy.reset("put the red cube in the bin", seed=5)
    policy.observe(black_observation(ours, 0))
    return hashlib.sha256(policy.act().actions.tobytes()).hexdigest()

import lerobot.configs.train, lerobot.policies.pretrained as pretrained, lerobot.processor
from lerobot.policies import ACTConfig
print(json.dumps({
    "heavy": heavy,
    "chunks": [chunk(ours), chunk(lerobots)],
    "lineage": ours.lineage.id,
    "known": sorted(PreTrainedConfig.get_known_choices()),
    "same": [
        PreTrainedConfig.get_choice_class("act") is ACTConfig,
        pretrained.TrainPipelineConfig is lerobot.configs.train.TrainPipelineConfig,
        lerobot.processor.NormalizerProcessorStep is type(pipelines[0].steps[-1]),
        isinstance(ours.network, pretrained.PreTrainedPolicy) and type(ours.network) is type(network),
        callable(lerobot.processor.TokenizerProcessorStep),
        type(lerobot.policies) is type(sys) and lerobot.policies is sys.modules["lerobot.policies"],
        lerobot.policies.pretrained is pretrained,
        lerobot.processor.pipeline is sys.modules["lerobot.processor.pipeline"],
    ],
}))
"""


RACE = """
import importlib, sys, threading
sys.setswitchinterval(1e-5)
import engram.policies
import lerobot.policies.pretrained
hollow = lerobot.policies

def load(name, found):
    try:
        found.append(importlib.import_module(name))
        from lerobot.processor import TokenizerProcessorStep
        from lerobot.policies import ACTConfig
    except BaseException as error:
        found.append(error)

found = []
assert lerobot.policies.pretrained is sys.modules["lerobot.policies.pretrained"]
assert "lerobot.policies" not in sys.modules
names = ("lerobot.policies.factory", "lerobot.processor.tokenizer_processor", "lerobot.envs", "lerobot.configs.train")
threads = [threading.Thread(target=load, args=(name, found), daemon=True) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(100)
assert not any(thread.is_alive() for thread in threads), found
assert hollow.ACTConfig is lerobot.policies.ACTConfig and hollow is not lerobot.policies
print([error for error in found if isinstance(error, BaseException)])
"""


def test_threads_that_import_the_rest_of_lerobot_at_once_get_it_as_always():
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[]"


def run(first):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, first, *HEAVY], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_shipped_policy_is_loaded_without_the_rest_of_lerobot_and_to_the_same_bits():
    lean, whole = run("engram"), run("lerobot")
    assert lean.pop("heavy") == [] and whole.pop("heavy")
    assert len({*lean["chunks"], *whole["chunks"]}) == 1
    assert all(lean["same"])
    assert lean == whole
