"""SmolVLA and pi0 with a few thousand random weights, saved as LeRobot saves them. No network is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pi0 import modeling_pi0
from lerobot.policies.pi0.configuration_pi0 import PI0Config
from lerobot.policies.pi0.processor_pi0 import Pi0NewLineProcessor
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from lerobot.processor import NewLineTaskProcessorStep, TokenizerProcessorStep
from lerobot.processor.factory import make_default_policy_processor_steps, make_policy_processor_pipelines
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PaliGemmaConfig,
    PreTrainedTokenizerFast,
    SmolVLMConfig,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

FAMILIES = ("smolvla", "pi0")
SIDE = 32
WORDS = (
    "<unk>",
    "<pad>",
    "<image>",
    "<fake>",
    "<global>",
    "<end>",
    "go",
    "to",
    "the",
    "red",
    "blue",
    "cube",
    "do",
    "as",
)


def save_tiny(family: str, folder: Path, state: int, cameras: tuple[str, ...], stats: dict[str, Any]) -> Any:
    """Write a tiny policy of ``family`` and its processors; return LeRobot's policy and both pipelines."""
    torch.manual_seed(0)
    language_model = _save_language_model(folder.with_name("vlm"))
    features: dict[str, Any] = {
        "input_features": {
            **{f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, SIDE, SIDE)) for name in cameras},
            "observation.state": PolicyFeature(FeatureType.STATE, (state,)),
        },
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (7,))},
        "chunk_size": 6,
        "n_action_steps": 3,
        "device": "cpu",
    }
    if family == "smolvla":
        config: Any = SmolVLAConfig(
            vlm_model_name=str(language_model), resize_imgs_with_padding=(SIDE, SIDE), num_vlm_layers=2, num_steps=3,
            **features,
        )  # fmt: skip
        policy: Any = SmolVLAPolicy(config)
        new_line: Any = NewLineTaskProcessorStep()
    else:
        config = PI0Config(image_resolution=(SIDE, SIDE), num_inference_steps=3, **features)
        policy = modeling_pi0.PI0Policy(config)
        new_line = Pi0NewLineProcessor()
    with torch.no_grad():
        for weight in policy.parameters():
            if weight.ndim > 1:  # as they come they are so small that pictures hardly reach the actions
                weight.normal_(std=weight[0].numel() ** -0.5)
    policy.eval().save_pretrained(folder)
    steps = make_default_policy_processor_steps(config, stats)
    tokens = TokenizerProcessorStep(tokenizer_name=str(language_model), padding="max_length", max_length=8)
    pre, post = make_policy_processor_pipelines(
        input_steps=[
            steps.rename_observations,
            steps.add_batch_dim,
            new_line,
            tokens,
            steps.to_device,
            steps.normalize,
        ],
        output_steps=[steps.unnormalize, steps.to_cpu],
    )
    pre.save_pretrained(folder)
    post.save_pretrained(folder)
    return policy, pre, post


def shrink_pi0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make LeRobot's table of pi0's sizes, which no configuration reaches, a small one."""
    sizes = {"paligemma": _tiny_paligemma, "gemma": modeling_pi0.CONFIG_MAPPING["gemma"]}
    build = modeling_pi0.PaliGemmaForConditionalGenerationWithPiGemma

    def small_projection(config: PaliGemmaConfig) -> Any:
        config.vision_config.projection_dim = 16
        return build(config=config)

    monkeypatch.setattr(modeling_pi0, "PaliGemmaForConditionalGenerationWithPiGemma", small_projection)
    monkeypatch.setattr(modeling_pi0, "CONFIG_MAPPING", sizes)
    monkeypatch.setattr(modeling_pi0, "get_gemma_config", lambda _: modeling_pi0.GemmaConfig(16, 2, 16, 8, 1, 4))


def _tiny_paligemma() -> PaliGemmaConfig:
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "patch_size": 8, "image_size": SIDE,
    }  # fmt: skip
    return PaliGemmaConfig(vision_config=vision, text_config={"model_type": "gemma"}, projection_dim=16)


def _save_language_model(folder: Path) -> Path:
    """Write what SmolVLA looks up of its language model: sizes, tokenizer, processors."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    extra = {
        "image_token": "<image>", "fake_image_token": "<fake>", "global_image_token": "<global>",
        "end_of_utterance_token": "<end>",
    }  # fmt: skip
    words = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", extra_special_tokens=extra
    )
    text = {
        "model_type": "llama", "vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 1,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": SIDE, "patch_size": 8,
    }  # fmt: skip
    config = SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, image_token_id=2)
    config.save_pretrained(folder)
    SmolVLMProcessor(SmolVLMImageProcessor(), words, SmolVLMVideoProcessor(), image_seq_len=4).save_pretrained(folder)
    return folder
