"""The tables of the results page that are about perception and speed."""

from __future__ import annotations

from collections.abc import Mapping

from engram.benchmarks.result_files import ResultFile, number, percent, short, table, target

Results = Mapping[str, ResultFile]


def perception(results: Results) -> list[str]:
    """The geometric detector beside plain Open3D, on the same held-out scenes."""
    rows = []
    for name, row in results["perception"].content["rows"].items():
        error, time = row["centre_error_mm"], row["time_ms"]
        errors = f"{error['p50']:.1f} / {error['p90']:.1f}"
        times = f"{time['p50']:.1f} / {time['p99']:.1f}"
        counts = f"{row['recall']['n']:,} / {row['precision']['n']:,}"
        rows.append([name, percent(row["recall"]), percent(row["precision"]), errors, times, counts])
    head = ("detector", "recall", "precision", "center error p50 / p90, mm", "time p50 / p99, ms", "n")
    return [
        "Rendered held-out scenes. *Plain Open3D* removes the table's plane and clusters the rest with DBSCAN.",
        "",
        *table(head, rows),
    ]


STAGES = {
    "camera_to_command_chunk_due": "camera to command, when a chunk is due",
    "camera_to_command_no_chunk_due": "camera to command, while a chunk lasts",
    "forward_pass": "of it: the network's forward pass",
    "overhead_chunk_due": "of it: everything but the forward pass",
    "publish_the_step": "publish a step",
    "sim_to_policy_observation_complete": "simulation to policy, until the observation is complete",
    "wait_for_the_policy_thread": "wait for the policy's thread",
    "policy_to_safety": "policy to safety",
    "controller_safety_filter": "controller and safety filter",
    "safety_to_sim": "safety to simulation",
    "raw_bare": "raw rclpy: two images, joint states, one peer",
    "raw_all_messages": "raw rclpy: every message, one peer",
    "raw_all_messages_and_processes": "raw rclpy: every message, as many processes",
    "raw_rest_later": "raw rclpy: the same in our order (the target's reference)",
    "raw_all_messages_processes_and_work": "raw rclpy: the same beside rendering and the network",
}


def latency(results: Results) -> list[str]:
    """From the camera's stamp to the command, beside plain rclpy processes that send the same bytes."""
    result = results["loop"]
    rows = []
    for key, name in STAGES.items():
        row = result.figure(f"loop_{key}_ms")
        rows.append([name, short(row["p50"]), number(row), str(row["n"])])
    ratios = []
    for name, row in result.figures.items():
        if "_over_raw_" in name:
            peer = name.split("_over_raw_")[1].removesuffix("_p99").replace("_", " ")
            ratios.append([f"overhead over raw rclpy, {peer}", short(row["p50"]), number(row), target(row)])
    return [
        "Wall clock, processes over Fast DDS on two shared cores.",
        "[Decision 8](decisions/0008-the-same-bytes.md) defines the raw loops.",
        "",
        *table(("stage", "p50, ms", "p99, ms", "n"), rows),
        *table(("ratio", "at p50", "at p99", "target, p99"), ratios),
    ]


def simulation(results: Results) -> list[str]:
    """Simulation steps per second beside other environments."""
    result = results["sim"]
    rows = []
    for name, row in result.content["rates"].items():
        rates = [number({"value": row[kind][0], "interval": row[kind][1:]}) for kind in ("wall", "cpu")]
        rows.append([name, row["kind"], *rates])
    goals = [[f"`{name}`", number(row), target(row)] for name, row in result.figures.items()]
    return [
        *table(("environment", "what", "steps per second", "steps per CPU second"), rows),
        *table(("figure", "value", "target"), goals),
    ]


POLICY = {
    "policy_answer_cpu_ms_p50": "an answer of the policy, CPU ms, p50",
    "answer_time_beside_act": "answer: time relative to LeRobot's ACT",
    "answer_time_beside_bare_network": "answer: time relative to its own bare network",
    "training_step_time_beside_act": "training step: time relative to ACT",
    "memory_share_of_an_answer": "sequence memory: share of an answer",
    "memory_share_of_a_control_step": "sequence memory: share of a control step, replanning every fourth step",
    "memory_share_of_a_control_step_both_asked_at_every_step": "the same, replanning at every step",
    "memory_share_of_a_control_step_asked_at_every_step_beside_every_fourth": (
        "a network with a bank, replanning at every step, minus one without a memory, replanning every fourth: share "
        "of a "
        "control step"
    ),
    "fast_forgetful_training_speed_beside_gru": "training: speed of Fast and Forgetful Memory relative to the GRU",
    "fast_forgetful_parallel_speed_beside_sequential": "training: its parallel form relative to step by step",
    "bank_training_time_beside_gru": "training: time of the bank relative to the GRU",
}


def policy_speed(results: Results) -> list[str]:
    """Time of an answer and what the sequence memory adds to it."""
    rows = [
        [name, number(row := results["policy"].figure(key)), str(row["n"]), target(row)] for key, name in POLICY.items()
    ]
    return table(("figure", "value", "n", "target"), rows)


def first_hour(results: Results) -> list[str]:
    """How long each command of the README takes in a fresh clone."""
    result = results["first_hour"]
    rows = [
        [
            f"`{row['command']}`",
            f"`{row['ran']}`" if row["ran"] != row["command"] else "as written",
            f"{row['seconds']}",
        ]
        for row in result.content["commands"]
        if row["ran"] and row["seconds"]
    ]
    return [
        f"The commands that the README had at commit {result.commit}, in their order, in a fresh clone; `engram",
        "improve`",
        "and `engram validate` came later. The packages had been downloaded before. Commands that run for hours or",
        "until",
        "Ctrl-C ran shorter. Those that need a ROS installation were not run.",
        "",
        *table(("command", "what ran", "seconds"), rows),
        *plain(result),
    ]


def plain(result: ResultFile) -> list[str]:
    """Return every row of a benchmark that has no table of its own."""
    rows = []
    for name, row in result.figures.items():
        words = name.removeprefix(f"{result.name}_").replace("_", " ")
        rows.append([words, number(row), str(row.get("n") or "–"), target(row)])
    return table(("figure", "value", "n", "target"), rows)
