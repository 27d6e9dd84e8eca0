"""SmolVLA (Shukor et al., 2025) as LeRobot implements it, split into prefix and action expert."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lerobot.policies.common.vla_utils import make_att_2d_masks
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS
from torch import Tensor, nn

from engram.policies.backbones.trunk import Prefix, Trunk, mean_of, own


class SmolVLATrunk(Trunk):
    """Its prefix is images, instruction and, last, the robot's state. Images and instruction do not attend to the
    state."""

    @property
    def norms(self) -> Sequence[nn.Module]:
        """The first norm of every layer of the action expert."""
        return [layer.input_layernorm for layer in self.policy.model.vlm_with_expert.lm_expert.layers]

    @property
    def width(self) -> int:
        """Width of the vision-language model."""
        return int(self.policy.model.state_proj.out_features)

    @property
    def denoising_steps(self) -> int:
        """Euler steps from noise to a chunk."""
        return int(self.policy.config.num_steps)

    @torch.no_grad()
    def look(self, batch: dict[str, Tensor]) -> Prefix:
        """Run the vision-language model once."""
        policy, model = self.policy, self.policy.model
        batch = policy._prepare_batch(dict(batch))
        images, image_masks = policy.prepare_images(batch)
        state = policy.prepare_state(batch)
        words, word_mask = batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK]
        embedded, readable, order = model.embed_prefix(images, image_masks, words, word_mask, state=state)
        (out, _), cache = model.vlm_with_expert.forward(
            attention_mask=make_att_2d_masks(readable, order),
            position_ids=torch.cumsum(readable, dim=1) - 1,
            past_key_values=None,
            inputs_embeds=[embedded, None],
            use_cache=True,
        )
        # the state's token is the first that opens a new block of attention; behind it there is only padding
        pictures = int(order[0].to(torch.int64).argmax()) - words.shape[1]
        return Prefix(
            words=mean_of(out[:, pictures : pictures + words.shape[1]], word_mask),
            pictures=out[:, :pictures],
            readable=readable,
            state=state,
            cache=cache,
        )

    def velocity(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        """Evaluate the action expert."""
        return self.policy.model.denoise_step(
            prefix_pad_masks=prefix.readable, past_key_values=own(prefix.cache), x_t=x, timestep=time
        )
