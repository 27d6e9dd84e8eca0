"""The reference page is what the code says."""

from pathlib import Path

from engram.nodes.reference import NODES, parameters, reference


def test_the_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "nodes.md"
    assert page.read_text() == reference(), "run: python -m engram.nodes.reference > docs/nodes.md"


def test_every_parameter_is_described():
    for cls in NODES:
        for config, prefix in ((cls.config_class, ""), *((c, p) for p, c in cls.sections.items())):
            for name, _, _, text in parameters(config, prefix):
                assert text, f"{cls.__name__}: {name} has no description"
