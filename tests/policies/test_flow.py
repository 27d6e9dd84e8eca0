import torch

from engram.policies.vla.flow import flow_matching_loss, integrate


def test_loss_by_hand():
    # chunk 3, noise 1, time 0.25: point 0.75 * 1 + 0.25 * 3 = 1.5, wanted velocity 2; 2 x gives 3: error 1
    chunk, noise = torch.full((1, 1, 1), 3.0), torch.full((1, 1, 1), 1.0)
    loss = flow_matching_loss(lambda x, t: 2 * x, chunk, noise, torch.tensor([0.25]))
    assert loss.item() == 1.0


def test_padded_rows_do_not_count():
    chunk, noise = torch.tensor([[[1.0], [100.0]]]), torch.zeros(1, 2, 1)
    valid = torch.tensor([[True, False]])
    loss = flow_matching_loss(lambda x, t: torch.zeros_like(x), chunk, noise, torch.zeros(1), valid)
    assert loss.item() == 1.0  # (0 - 1)^2 of the first row alone


def test_the_true_velocity_of_a_straight_path_leads_from_noise_to_chunk():
    chunk, noise = torch.randn(2, 4, 7), torch.randn(2, 4, 7)
    for steps in (1, 3, 10):
        torch.testing.assert_close(integrate([lambda x, t: chunk - noise] * steps, noise), chunk)


def test_times_rise_from_zero_in_equal_steps():
    seen = []

    def velocity(x, time):
        seen.append(time[0].item())
        return torch.zeros_like(x)

    integrate([velocity] * 4, torch.zeros(1, 2, 2))
    assert seen == [0.0, 0.25, 0.5, 0.75]
