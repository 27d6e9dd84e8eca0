"""pi0 (Black et al., 2024) as LeRobot implements it, split into prefix and action expert."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lerobot.policies.common.vla_utils import make_att_2d_masks, prepare_attention_masks_4d
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor, nn

from engram.policies.backbones.trunk import Prefix, Trunk, mean_of


class Pi0Trunk(Trunk):
    """Its prefix is pictures and words; the robot's state goes to the action expert."""

    @property
    def norms(self) -> Sequence[nn.Module]:
        """The first norm of every layer of the action expert."""
        return [layer.input_layernorm for layer in self.policy.model.paligemma_with_expert.gemma_expert.model.layers]

    @property
    def width(self) -> int:
        """Width of the vision-language model."""
        return int(self.policy.model.paligemma_with_expert.paligemma.config.text_config.hidden_size)

    @property
    def denoising_steps(self) -> int:
        """Euler steps from noise to a chunk."""
        return int(self.policy.config.num_inference_steps)

    @torch.no_grad()
    def look(self, batch: dict[str, Tensor]) -> Prefix:
        """Run the vision-language model once."""
        policy, model = self.policy, self.policy.model
        images, image_masks = policy._preprocess_images(batch)
        words, word_mask = batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK]
        embedded, readable, order = model.embed_prefix(images, image_masks, words, word_mask)
        language_model = model.paligemma_with_expert.paligemma.model.language_model
        language_model.config._attn_implementation = "eager"  # as LeRobot's own sampling sets it
        (out, _), cache = model.paligemma_with_expert.forward(
            attention_mask=prepare_attention_masks_4d(make_att_2d_masks(readable, order)),
            position_ids=torch.cumsum(readable, dim=1) - 1,
            past_key_values=None,
            inputs_embeds=[embedded, None],
            use_cache=True,
        )
        pictures = out.shape[1] - words.shape[1]
        return Prefix(
            words=mean_of(out[:, pictures:], word_mask),
            pictures=out[:, :pictures],
            readable=readable,
            state=policy.prepare_state(batch),
            cache=cache,
        )

    def velocity(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        """Evaluate the action expert."""
        return self.policy.model.denoise_step(
            state=prefix.state, prefix_pad_masks=prefix.readable, past_key_values=prefix.cache, x_t=x, timestep=time
        )
