"""The other process: sends every message back, answers every service and runs the action.

Run as `python -m tests.interfaces.peer`; prints "ready" when its endpoints exist and ends on SIGTERM.
"""

import rclpy
import tf2_msgs.msg
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

import engram_interfaces.msg
import engram_interfaces.srv
from engram_interfaces.action import ExecuteTask
from tests.interfaces.filling import fill


def public_classes(module) -> list[type]:
    """The interface classes of one generated package, without a service's own Request, Response and Event."""
    classes = [value for _, value in sorted(vars(module).items()) if isinstance(value, type)]
    return [cls for cls in classes if "_" not in cls.__name__]


MESSAGES = [*public_classes(engram_interfaces.msg), tf2_msgs.msg.TFMessage]
SERVICES = public_classes(engram_interfaces.srv)
REQUEST_SEED, RESPONSE_SEED, GOAL_SEED, FEEDBACK_SEED, RESULT_SEED = 1, 2, 3, 4, 5


def serve_message(node: Node, cls: type) -> None:
    """Send what arrives on there/<type> back on back/<type>."""
    publisher = node.create_publisher(cls, f"back/{cls.__name__}", 10)
    node.create_subscription(cls, f"there/{cls.__name__}", publisher.publish, 10)


def serve_service(node: Node, cls: type) -> None:
    """Answer the filled response to exactly the filled request, an empty one to anything else."""

    def answer(request, response):
        same = request == fill(cls.Request, REQUEST_SEED)
        return fill(cls.Response, RESPONSE_SEED) if same else response

    node.create_service(cls, f"serve/{cls.__name__}", answer)


def execute(goal_handle):
    """Publish one feedback, then succeed if the goal arrived as it was sent."""
    if goal_handle.request != fill(ExecuteTask.Goal, GOAL_SEED):
        goal_handle.abort()
        return ExecuteTask.Result()
    goal_handle.publish_feedback(fill(ExecuteTask.Feedback, FEEDBACK_SEED))
    goal_handle.succeed()
    return fill(ExecuteTask.Result, RESULT_SEED)


def main() -> None:
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # SIGTERM ends it at once: nothing is left to do
    node = Node("peer")
    for cls in MESSAGES:
        serve_message(node, cls)
    for cls in SERVICES:
        serve_service(node, cls)
    ActionServer(node, ExecuteTask, "execute_task", execute)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    print("ready", flush=True)
    executor.spin()


if __name__ == "__main__":
    main()
