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
    beside = []
    for label, words in {"chunk_due": "when a chunk is due", "no_chunk_due": "while a chunk lasts"}.items():
        names = (f"{label}_ms", f"over_alone_{label}_p99")
        row, ratio = (result.figure(f"loop_beside_the_gate_{name}") for name in names)
        if row:
            times = [f"camera to command, {words}", short(row["p50"]), number(row)]
            beside.append([*times, short(ratio["p50"]), number(ratio), target(ratio)])
    head = ("beside the gate", "p50, ms", "p99, ms", "p50 over alone", "p99 over alone", "target, p99")
    said = "The same episodes while `gate_node` validates candidates beside the loop, as nice as it is shipped:"
    return [
        "Wall clock, processes over Fast DDS on two shared cores. The rows from *publish a step* to *safety to "
        "simulation* are the parts of *everything but the forward pass*, in control steps at which a chunk was due. "
        "*Raw rclpy* rows are round trips of plain processes that send the same bytes "
        "([decision 8](decisions/0008-the-same-bytes.md) defines them, in this order). The ratios divide *everything "
        "but the forward pass* by each of them, percentile by percentile. *Bare* is the first raw row, *rest later* "
        "the one in our order.",
        "",
        *table(("stage", "p50, ms", "p99, ms", "n"), rows),
        *table(("ratio", "at p50", "at p99", "target, p99"), ratios),
        *([said, "", *table(head, beside)] if beside else []),
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
        "The contenders take turns. Medians over the turns; brackets hold quartiles. A step of ours is a control "
        "step. "
        "`state_only_ratio`: speed of `MujocoWorld.step` over that of bare `mj_step`; `state_only_env_ratio`: of the "
        "environment with inverse kinematics and safety filter, over the same.",
        "",
        *table(("environment", "what", "steps per second", "steps per CPU second"), rows),
        *table(("figure", "value", "target"), goals),
    ]


POLICY = {
    "policy_answer_cpu_ms_p50": "an answer of the policy, CPU ms, p50",
    "answer_wall_ms_p50_shipped_policy": "an answer of `engram`, its memory read, wall ms, p50",
    "answer_wall_ms_p99_shipped_policy": "the same, p99",
    "answer_wall_ms_p50_lerobot_act_network_alone": "LeRobot's ACT, its network alone, wall ms, p50",
    "answer_largest_difference": "largest difference of an answer from that of the whole episode at once (normalised)",
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
    return [
        "CPU time of one thread. The contenders take turns; medians over n turns, brackets hold quartiles. An *answer* "
        "is a new observation of two 128 px cameras, its preprocessing, the memory where there is one, and a chunk.",
        "",
        *table(("figure", "value", "n", "target"), rows),
    ]


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


ABOUT = {
    "executors": (
        "Simulation, policy and safety node run in lock-step, as two sets that take turns on the same episodes: *kept* "
        "has Engram's executor, which keeps its wait set from one wait to the next, *rclpy* has rclpy's own. *Kept "
        "over rclpy* is the first divided by the second; below 1, ours needs less. *Message*: CPU time in which a node "
        "takes in one message. *A step*: CPU time of a process in one control step. *Overhead*: time from camera to "
        "command without the network, where a chunk was due. *No chunk*: the same time while a chunk lasts."
    ),
    "barrier": (
        "A hostile policy asks the simulated Panda for random joint positions, and has no workspace: the barrier alone "
        "keeps the arm apart from itself and the table. *Link in link* and *link below table* count episodes in which "
        "the makers' collision meshes overlap, or lie below the table; *without barrier* are the same episodes. *Step "
        "cpu ms*: CPU time of the barrier in a control step, of the scripted experts and of the hostile policy."
    ),
    "learner": (
        "One CPU core; 1,000 stored control steps with two 128 px cameras, batches of 64. *Per cpu s*: batches or "
        "updates in a second of CPU time; brackets hold quartiles. *As recorded* has the cameras' pictures, *as the "
        "policy sees them* smaller ones. *Sampling over lerobot*: batches as recorded over those of LeRobot's "
        "`ReplayBuffer`. *Update over network alone*: updates over *forward and backward alone*."
    ),
    "fsync": (
        "Two memories of the same objects take the same frames, and their commits take turns. *With fsync* a commit is "
        "on the disk before it is acknowledged, *without* it survives `kill -9` alone. *Ratio*: of the two commits of "
        "a turn. The brackets of times hold quartiles."
    ),
    "stores": (
        "Full stores: 100 recent changes, 4,000 events of 500 tasks, 100 classes. *Recall* answers a question, "
        "*update* takes in a change of the scene graph, *consolidation* computes the habits of a class in the "
        "background. Brackets hold quartiles."
    ),
    "faults": (
        "[What is done](how-to/reproduce.md#faults-on-purpose) to the running nodes, and what is checked. *Kills*: a "
        "killed node has *recovered* if it is active again within 60 s. One that is not counts as not recovered, and "
        "is in no recovery time. *Moved before released*: the safety node was killed in an episode, and the arm moved "
        "before somebody released it. *Hostile*: random and wrong messages from outside. *Sensors*: faults of joint "
        "sensors and cameras; *declared reactions* is the share of faults to which the nodes reacted as "
        "[Reactions](reference/reactions.md) says. n of the rows on limits and motions: what was checked. "
        "A killed safety node comes back and brakes from its last command "
        "([decision 23](decisions/0023-limits-of-the-command-sequence.md)). Its commands count only once DDS has "
        "noticed the end of the killed one, 6 s after that. Here the arm was watched from 3 s on after the node was "
        "active again, and one that moved was still braking, or its episode had just ended; "
        "[below](#faults-safety) it is watched from 8 s on."
    ),
    "faults_safety": (
        "The safety node alone is killed, in running episodes, every second time under a stop. What is watched is that "
        "the robot is held until somebody releases it."
    ),
    "limits": (
        "The safety filter of the Panda and of the SO-101 meets hostile policies, faults of the encoders, servos that "
        "lag or are blocked, and people who stop and release. Its commands are checked as a sequence. *Largest share* "
        "1: a limit was used in full, and not exceeded. In half of the episodes the robot's jerk limits are divided by "
        "100: as they are, ten commands a second cannot exceed them. *Decision cpu ms*: CPU time of one decision."
    ),
    "link": (
        "The nodes on two machines, as [Spread the nodes over two machines](how-to/several_machines.md) says, with "
        "`base`; six episodes of each condition, one of each tabletop task. *Clean*: a perfect link. *Lossy*: a tenth "
        "of the Ethernet frames is lost each way, and the others come 0.1 s late. *Lossy and cut*: besides, nothing "
        "passes for 10 s from each goal on. *Policy far*: the policy runs on the other machine, which is not "
        "recommended. *Images of front arrived*: share of this camera's pictures that the page got. Rows that begin "
        "with *images* are streams of 80 pictures, ten a second, over the lossy link, and the share that arrived. They "
        "name the Fast DDS profile (`config/fastdds.xml`, `config/fastdds_link.xml`), the reliability, the depth of "
        "the queue and the size of a picture."
    ),
}
"""What stands above the rows of a benchmark that has no table of its own, by the name of its result file."""


LEARNER = {
    "learner_ten_critics": (
        "*Ten critics*: updates of ten critics with batches of 256; after every fifth the actor learns, too. Ours see "
        "what the policy's encoder made of a control step, once. LeRobot's soft actor-critic has layers as wide, and "
        "sees the same numbers (*same inputs*) or encodes two 128 px pictures in each update (*from pictures*)."
    ),
    "learner_cost_of": (
        "*Cost*: CPU time with 20 tasks in the replay over that with one; the update rehearses other goals in both."
    ),
    "learner_bytes": (
        "*Bytes per step*: of episodes of six tabletop tasks in the simulator. LeRobot's buffer is in RAM, and so is "
        "our replay, which is full and takes in episodes in place of others: its peak is judged. Our experience store "
        "keeps every bit on disk, as PNG files do, and videos do not."
    ),
    "learner_recording": (
        "*Recording*: the policy answers at every control step, with recording and without, in turns. *Handing over*: "
        "time in the thread of the step. *Adds to a step*: difference of the percentiles, by the clock on the wall."
    ),
}
"""What the learner's rows mean, by how their names begin."""


def learner(results: Results) -> list[str]:
    """Replay, updates, storage and recording of the learner, beside LeRobot."""
    result = results["learner"]
    told = [text for begin, text in LEARNER.items() if any(name.startswith(begin) for name in result.figures)]
    about, rows = plain(result)[:2], plain(result)[2:]
    return [*about, *(line for text in told for line in (text, "")), *rows]


def plain(result: ResultFile) -> list[str]:
    """Return every row of a benchmark that has no table of its own."""
    rows = []
    for name, row in result.figures.items():
        words = name.removeprefix(f"{result.name}_").replace("_", " ")
        rows.append([words, number(row), str(row.get("n") or "–"), target(row)])
    about = [ABOUT[result.name], ""] if result.name in ABOUT else []
    return [*about, *table(("figure", "value", "n", "target"), rows)]
