"""Zero-shot detectors of a few thousand random weights, saved to a folder as their big sisters are on the hub."""

from __future__ import annotations

from pathlib import Path

import torch

WORDS = ("cube", "cup", "bin", "drawer", "button", "red", "blue", "a", ".")


def save_owlvit(folder: Path) -> Path:
    """Save a tiny OWL-ViT with its processor."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        OwlViTConfig,
        OwlViTForObjectDetection,
        OwlViTImageProcessor,
        OwlViTProcessor,
        PreTrainedTokenizerFast,
    )

    tokens = {w: i for i, w in enumerate(("[PAD]", "[UNK]", "[BOS]", "[EOS]", *WORDS))}
    raw = Tokenizer(models.WordLevel(tokens, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        bos_token="[BOS]",
        eos_token="[EOS]",
        model_max_length=16,
    )
    config = OwlViTConfig(
        text_config={
            "vocab_size": len(tokens), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 16,
            "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
        },
        vision_config={
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 64, "patch_size": 16,
        },
        projection_dim=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = OwlViTForObjectDetection(config)
    with torch.no_grad():
        for weight in model.box_head.parameters():  # boxes that overlap, whatever the library begins with
            weight.normal_(std=0.3)
    model.save_pretrained(folder)
    images = OwlViTImageProcessor(size={"height": 64, "width": 64}, crop_size={"height": 64, "width": 64})
    OwlViTProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def save_grounding_dino(folder: Path) -> Path:
    """Save a tiny Grounding DINO with its processor."""
    from transformers import (
        BertConfig,
        BertTokenizerFast,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
        SwinConfig,
    )

    vocabulary = folder.parent / "vocab.txt"
    vocabulary.write_text("\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)))
    tokenizer = BertTokenizerFast(str(vocabulary))
    config = GroundingDinoConfig(
        backbone_config=SwinConfig(
            image_size=64, patch_size=4, window_size=2, embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2],
            out_features=["stage2", "stage3", "stage4"],
        ),
        text_config=BertConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
        ),
        d_model=32, encoder_layers=1, encoder_ffn_dim=32, encoder_attention_heads=2, decoder_layers=2,
        decoder_ffn_dim=32, decoder_attention_heads=2, num_queries=12, num_feature_levels=4, max_text_len=32,
    )  # fmt: skip
    torch.manual_seed(0)
    GroundingDinoForObjectDetection(config).save_pretrained(folder)
    GroundingDinoProcessor(GroundingDinoImageProcessor(size={"height": 128, "width": 128}), tokenizer).save_pretrained(
        folder
    )
    return folder
