#!/usr/bin/env python3
"""Writes losses of reinforcement learning and their gradients by PyTorch to tests/fixtures/losses.

    pip install torch==2.15.0 safetensors==0.8.0
    tools/make_loss_fixtures.py

Every file has the same batch of B unrolls with up to S steps, whose frames are the rows of `out` or
of `q` one after another, `length` + 1 of each, and the results of one loss, computed in f64 by the
definitions of the papers, with the gradient by automatic differentiation:

    action, length                      i32: [B, S], [B]; continuous: f32 [B, S, D]
    reward, discount, log_mu, weight    f32: [B, S] three times, [B]
    out, or q and q_target              f32: [F, A + 1], continuous [F, 2D + 1], or [F, A] twice
    loss, gradient, priority            f64: [1], of out or q, [B]

text.safetensors has the losses of text models instead, of B rows of N logits:

    x, label, target, weight            f32 [B, N], i32 [B], f32 [B, N], f32 [N]
    NAME_loss, NAME_gradient            f64 [1], [B, N] of the losses single_label, weighted,
                                        multi_label and regression (of the first column)
"""

import pathlib

import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/losses"
LENGTHS = (4, 1, 6, 6, 3, 2, 5)
ACTIONS, STEPS = 3, 6
GAMMA, LAMBDA, N_STEP, ETA = 0.9, 0.8, 3, 0.75
LOW, HIGH = torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 0.5])
RHO_BAR, C_BAR, VALUE_COST, ENTROPY_COST, RATIO_CLIP = 1.2, 1.1, 0.7, 0.03, 0.2


def make_batch():
    """f32 values, so that both sides have the same ones."""
    torch.manual_seed(41)
    count = len(LENGTHS)
    discount = torch.ones(count, STEPS)
    for i in range(0, count, 3):   # these terminate
        discount[i, LENGTHS[i] - 1] = 0
    frames = sum(LENGTHS) + count
    return {"action": torch.randint(0, ACTIONS, (count, STEPS)).int(),
            "length": torch.tensor(LENGTHS).int(), "reward": 3 * torch.randn(count, STEPS),
            "discount": discount, "log_mu": torch.log(0.1 + 0.8 * torch.rand(count, STEPS)),
            "weight": 0.1 + 0.9 * torch.rand(count), "out": torch.randn(frames, ACTIONS + 1),
            "q": 2 * torch.randn(frames, ACTIONS), "q_target": 2 * torch.randn(frames, ACTIONS)}


def unrolls(batch):
    """(index, first row, length) of each."""
    row = 0
    for i, length in enumerate(LENGTHS):
        yield i, row, length
        row += length + 1


def rescale(x):
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + 1e-3 * x


def unrescale(x):
    root = (torch.sqrt(1 + 4e-3 * (torch.abs(x) + 1 + 1e-3)) - 1) / 2e-3
    return torch.sign(x) * (root ** 2 - 1)


def n_step_targets(batch, row, i, length, rescaled):
    """Targets of R2D2: n-step double Q, which bootstraps within the unroll."""
    targets = []
    for t in range(length):
        value, factor = torch.zeros(()).double(), 1.0
        end = min(length, t + N_STEP)
        for k in range(t, end):
            value = value + factor * batch["reward"][i, k]
            factor = factor * GAMMA * batch["discount"][i, k]
        best = batch["q"][row + end].argmax()
        after = batch["q_target"][row + end, best]
        value = value + factor * (unrescale(after) if rescaled else after)
        targets.append(rescale(value) if rescaled else value)
    return torch.stack(targets)


def lambda_targets(batch, row, i, length):
    """Q(λ): the recursion from the last step back."""
    values = batch["q"][row + 1:row + length + 1].max(1).values
    result, after = [], values[-1]
    for t in reversed(range(length)):
        mixed = (1 - LAMBDA) * values[t] + LAMBDA * after
        after = batch["reward"][i, t] + GAMMA * batch["discount"][i, t] * mixed
        result.append(after)
    return torch.stack(result[::-1])


def q_loss(batch, targets_of, eta):
    """Mean of the weighted half squared TD errors, and the priorities."""
    loss, priority = 0, []
    for i, row, length in unrolls(batch):
        with torch.no_grad():
            targets = targets_of(batch, row, i, length)
        taken = batch["action"][i, :length].long()
        error = targets - batch["q"][row:row + length].gather(1, taken[:, None])[:, 0]
        loss = loss + batch["weight"][i] * (error ** 2 / 2).sum() / sum(LENGTHS)
        size = error.detach().abs()
        priority.append(eta * size.max() + (1 - eta) * size.mean())
    return loss, torch.stack(priority)


def vtrace(batch, row, i, length, log_pi):
    """Equation 1 of Espeholt et al. 2018 as a double sum, with λ as in section 4.1."""
    values = batch["out"][row:row + length + 1, -1]
    ratio = torch.exp(log_pi - batch["log_mu"][i, :length])
    rho, c = ratio.clamp(max=RHO_BAR), LAMBDA * ratio.clamp(max=C_BAR)
    factor = GAMMA * batch["discount"][i, :length]
    delta = rho * (batch["reward"][i, :length] + factor * values[1:] - values[:-1])
    targets = []
    for s in range(length):
        total, trace = values[s].clone(), 1.0
        for t in range(s, length):
            total = total + trace * delta[t]
            trace = trace * factor[t] * c[t]
        targets.append(total)
    after = torch.stack([*targets[1:], values[length]])
    advantage = rho * (batch["reward"][i, :length] + factor * after - values[:-1])
    return torch.stack(targets), advantage


def softmax(out, action):
    """Log-probabilities of the actions, and the entropies."""
    log_all = torch.log_softmax(out, 1)
    return (log_all.gather(1, action.long()[:, None])[:, 0],
            -(log_all.exp() * log_all).sum(1))


def clipped_gaussian(out, action):
    """The same for Gaussians whose samples are clipped to the bounds (Fujita & Maeda 2018)."""
    mean, log_std = out.chunk(2, 1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    low, high = LOW.double(), HIGH.double()
    inside = normal.log_prob((action - (low + high) / 2) / ((high - low) / 2))
    below = torch.special.log_ndtr((-1 - mean) / log_std.exp())
    above = torch.special.log_ndtr((mean - 1) / log_std.exp())
    log_pi = torch.where(action <= low, below, torch.where(action >= high, above, inside))
    return log_pi.sum(1), normal.entropy().sum(1)


def actor_critic_loss(batch, ppo, policy=softmax):
    """V-trace's actor-critic, or PPO's clipped surrogate with normalized advantages."""
    parts, priority = [], []
    for i, row, length in unrolls(batch):
        log_pi, entropy = policy(batch["out"][row:row + length, :-1], batch["action"][i, :length])
        with torch.no_grad():
            targets, advantage = vtrace(batch, row, i, length, log_pi)
        value = batch["out"][row:row + length, -1]
        if ppo:
            advantage = (targets - value).detach()
        parts.append((log_pi, batch["log_mu"][i, :length], advantage, targets - value, entropy,
                      batch["weight"][i].expand(length)))
        priority.append((targets - value).detach().abs().mean())
    log_pi, log_mu, advantage, error, entropy, weight = (torch.cat(x) for x in zip(*parts))
    if ppo:
        advantage = (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)
        ratio = torch.exp(log_pi - log_mu)
        clipped = ratio.clamp(1 - RATIO_CLIP, 1 + RATIO_CLIP)
        policy = -torch.minimum(ratio * advantage, clipped * advantage)
    else:
        policy = -log_pi * advantage
    loss = weight * (policy + VALUE_COST * error ** 2 / 2 - ENTROPY_COST * entropy)
    return loss.mean(), torch.stack(priority)


def make_continuous_batch():
    """Samples of policies near those of `out`, some of which are clipped."""
    batch = make_batch()
    count, size = len(LENGTHS), len(LOW)
    frames = sum(LENGTHS) + count
    batch["out"] = torch.cat([torch.randn(frames, size), 0.3 * torch.randn(frames, size) - 0.2,
                              torch.randn(frames, 1)], 1)
    batch["action"] = torch.zeros(count, STEPS, size)
    for i, row, length in unrolls(batch):
        acted = batch["out"][row:row + length, :-1] + 0.1 * torch.randn(length, 2 * size)
        mean, log_std = acted.chunk(2, 1)
        sample = mean + log_std.exp() * torch.randn(length, size)
        action = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * sample
        batch["action"][i, :length] = torch.minimum(torch.maximum(action, LOW), HIGH)
        log_mu, _ = clipped_gaussian(acted.double(), batch["action"][i, :length].double())
        batch["log_mu"][i, :length] = log_mu.float()
    return batch


def save(name, trained, loss_of, inputs):
    batch = {key: x.double() if x.dtype == torch.float32 else x for key, x in inputs.items()}
    batch[trained].requires_grad_()
    loss, priority = loss_of(batch)
    loss.backward()
    results = {"loss": loss.detach().reshape(1), "gradient": batch[trained].grad,
               "priority": priority}
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({key: x.contiguous() for key, x in {**inputs, **results}.items()},
              FOLDER / f"{name}.safetensors")


def save_text_losses():
    torch.manual_seed(43)
    rows, classes = 7, 4
    batch = {"x": 3 * torch.randn(rows, classes),
             "label": torch.tensor([0, 2, 2, 3, 0, 2, 1]).int(),
             "target": (torch.rand(rows, classes) < 0.4).float(),
             "weight": torch.tensor([0.75, 2.5, 0.5, 1.25])}
    label, target = batch["label"].long(), batch["target"].double()
    weight = batch["weight"].double()
    losses = {
        "single_label": lambda x: torch.nn.CrossEntropyLoss()(x, label),
        "weighted": lambda x: torch.nn.CrossEntropyLoss(weight=weight)(x, label),
        "multi_label": lambda x: torch.nn.BCEWithLogitsLoss()(x, target),
        "regression": lambda x: torch.nn.MSELoss()(x[:, 0], target[:, 1] - 2 * target[:, 0])}
    results = {}
    for name, loss_of in losses.items():
        x = batch["x"].double().requires_grad_()
        loss = loss_of(x)
        loss.backward()
        results[f"{name}_loss"] = loss.detach().reshape(1)
        results[f"{name}_gradient"] = x.grad
    save_file({**batch, **results}, FOLDER / "text.safetensors")


def main():
    save_text_losses()
    batch, continuous = make_batch(), make_continuous_batch()
    save("r2d2", "q", lambda b: q_loss(b, lambda *x: n_step_targets(*x, rescaled=True), ETA), batch)
    save("q_lambda", "q", lambda b: q_loss(b, lambda_targets, 0), batch)
    for name, ppo in (("vtrace", False), ("ppo", True)):
        save(name, "out", lambda b, ppo=ppo: actor_critic_loss(b, ppo), batch)
        save(f"{name}_gaussian", "out",
             lambda b, ppo=ppo: actor_critic_loss(b, ppo, clipped_gaussian), continuous)


if __name__ == "__main__":
    main()
