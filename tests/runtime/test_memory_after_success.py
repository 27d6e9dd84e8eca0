"""What the memory says of a task's object after the task succeeded, in simulation with perception."""

import pytest

from engram.core.pipeline import CommandPipeline
from engram.memory import RobotMemory
from engram.perception.embedding import default_text_encoder
from engram.perception.geometric import GeometricDetector
from engram.policies import load_policy
from engram.runtime.loop import Runtime
from engram.sim.world import MujocoWorld, WorldConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def runtime():
    world, encoder = MujocoWorld(WorldConfig(profile="fast", depth=True)), default_text_encoder()
    pipeline = CommandPipeline(world.kinematics, world.robot)
    detector = GeometricDetector(encoder=encoder)
    yield Runtime(
        world, load_policy("base"), pipeline, detector=detector, fresh_memory=lambda: RobotMemory(encoder=encoder)
    )
    world.close()


@pytest.mark.parametrize(("seed", "cube"), [(5, "red cube"), (1, "blue cube"), (2, "blue cube")])
def test_a_cube_that_was_put_in_the_bin_is_remembered_there(runtime, seed, cube):
    result = runtime.run_episode("pick_place", seed)
    assert result.oracle_success and cube in result.instruction
    answer = runtime.memory.ask(f"where is the {cube}")
    assert ", in the bin; I see it." in answer.text and answer.confidence > 0.9
    assert cube in {node.label for node in runtime.memory.ask("what is in the bin").nodes}
    assert not runtime.memory.ask("what is the robot holding").nodes
