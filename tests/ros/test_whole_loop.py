"""All nodes of the loop as processes: cameras, perception, memory, policy, safety and commands, one episode a task."""

import pytest
from rclpy.action import ActionClient
from trajectory_msgs.msg import JointTrajectory

from engram.nodes import qos
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import Experience, MemoryContext, SceneGraphUpdate, TaskStatus
from engram_interfaces.srv import ResetSim

TASKS = ("reach", "push_to_mark", "pick_place", "stack", "open_drawer", "press_button")
pytestmark = [pytest.mark.ros, pytest.mark.render, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_one_episode_of_each_task_over_dds(graph, tmp_path):
    graph.start("safety_node", lockstep=True)
    graph.start("memory_node", use_sim_time=True, lockstep=True, store=str(tmp_path / "memory"))
    graph.start("perception_node", lockstep=True, keep_all=True)
    graph.start(
        "policy_node",
        lockstep=True,
        policy="tests.ros.policies:ReadsContext",
        memory="wait",
        goal_timeout_s=3600.0,
        experience=True,
        spool=str(tmp_path / "spool"),
        weights_folder=str(tmp_path / "weights"),
    )
    graph.start("sim_node", lockstep=True, world_config__depth=True)
    names = ("safety_node", "memory_node", "perception_node", "policy_node", "sim_node")
    graph.active(*names, timeout_s=400)
    statuses = graph.listen(TaskStatus, "task/status", qos.LATCHED)
    commands = graph.listen(JointTrajectory, "command", qos.EVENTS)
    contexts = graph.listen(MemoryContext, "memory/context", qos.COMMAND)
    steps = graph.listen(Experience, "experience", qos.EXPERIENCE)
    updates = graph.listen(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    client = ActionClient(graph.node, ExecuteTask, "execute_task")
    graph.wait(client.server_is_ready, 60, "execute_task")
    for seed, task in enumerate(TASKS):
        commands.clear()
        contexts.clear()
        answer = graph.call(ResetSim, "sim/reset", ResetSim.Request(task=task, seed=seed))
        assert answer.accepted, answer.message
        goal = ExecuteTask.Goal(instruction=answer.instruction, task=task, episode=answer.episode)
        sent = client.send_goal_async(goal)
        graph.wait(sent.done, 60, "acceptance")
        result = sent.result().get_result_async()
        graph.wait(result.done, 400, f"outcome of {task}")
        outcome = result.result().result
        assert outcome.outcome in ("succeeded", "timeout"), outcome
        assert outcome.reason == "judged by the simulator"

        def ended(episode=answer.episode):
            return [s for s in statuses if s.episode == episode and s.state in ("succeeded", "failed")]

        end = graph.wait(ended, 60, f"last status of {task}")[-1]
        graph.wait(lambda steps=end.step: len(commands) >= steps, 60, f"commands of {task}")
        graph.wait(lambda: contexts, 60, "memory/context")  # what the camera saw came back to the policy as memory
    assert any(node.layer == "object" for update in updates for node in update.nodes)
    graph.wait(lambda: len(steps) >= 16, 60, "experience")  # more comes once this is acknowledged
    assert all(one.context.count and one.context.header.stamp == one.header.stamp for one in steps)
    refused = graph.call(ResetSim, "sim/reset", ResetSim.Request(task="dance"))
    assert not refused.accepted
    assert "unknown task 'dance'" in refused.message
    assert "push_to_mark" in refused.message
    assert all(process.alive() for process in graph.processes)
