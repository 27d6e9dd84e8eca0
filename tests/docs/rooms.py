"""Write the table of rooms in docs/explanation/architecture.md from the contracts in .importlinter.

python -m tests.docs.rooms
"""

from __future__ import annotations

from configparser import ConfigParser

from tests.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- rooms: written by python -m tests.docs.rooms -->", "<!-- end of rooms -->"
HOLDS = {
    "core": "value types, contracts, robot configuration, control, safety filter, geometry, registry, errors",
    "perception": "objects from RGB-D images, text embeddings",
    "memory": "the robot's memory: scene graph, queries, four stores, storage, merging",
    "policies": "the vision-language-action policy, sequence memories, training, LeRobot registration, checkpoints",
    "sim": "MuJoCo worlds, robots, tasks, scripted experts, the household",
    "learning": "experience store, replay, learning algorithms, weights",
    "runtime": "the in-process loop, policy runner, recorder, factories; what nodes run, without ROS",
    "validation": "evaluation of policies, reports",
    "viewer": "the web page, without ROS",
    "nodes": "ROS 2 nodes and message conversion",
    "app": "command line, demo, doctor, launcher",
    "lerobot": "registers policies and environments with LeRobot's commands",
    "benchmarks": "measurements, not in the wheel",
    "config": "parameter files",
}


def layers() -> list[list[str]]:
    """Return the rooms from top to bottom; rooms of one layer do not import each other."""
    lines = _contracts()["importlinter:contract:rooms"]["layers"].split("\n")
    return [[room.strip() for room in line.split("|")] for line in lines if line.strip()]


def may_import(room: str) -> list[str]:
    """Return the rooms below ``room``, without those that another contract forbids it."""
    contracts = _contracts()
    order = layers()
    level = next(i for i, layer in enumerate(order) if room in layer)
    below = [name for layer in order[level + 1 :] for name in layer]
    for name in contracts.sections():
        contract = contracts[name]
        if contract.get("type") == "forbidden" and f"engram.{room}" in contract["source_modules"].split():
            below = [other for other in below if f"engram.{other}" not in contract["forbidden_modules"].split()]
    return below


def table() -> str:
    """Return the table, from the bottom of the list to the top."""
    rooms = [room for layer in reversed(layers()) for room in layer if room != "config"]
    rows = [f"| `{r}/` | {HOLDS[r]} | {', '.join(o for o in may_import(r) if o != 'config') or '–'} |" for r in rooms]
    return "\n".join(["| room | holds | may import |", "|---|---|---|", *rows])


def with_table(text: str) -> str:
    """Return the page with the table between its markers written anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


def _contracts() -> ConfigParser:
    parser = ConfigParser()
    parser.read(REPOSITORY / ".importlinter")
    return parser


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
