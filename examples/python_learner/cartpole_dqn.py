#!/usr/bin/env python3
"""Double DQN in PyTorch on CartPole, in a fleet of Troop: a mean return above 475 of 500."""
import io
import pathlib

import torch
import troop


class QNetwork(torch.nn.Module):
    """Its parameters have the names and shapes of Troop's network: Learner.parameters."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 64), torch.nn.Linear(64, 64)])
        self.head = torch.nn.Linear(64, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


UPDATES = 75_000   # of the whole run: 300,000 steps, 32 samples per step, 128 per batch
online, target = QNetwork(), QNetwork()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
parts = {"online": online, "target": target, "optimizer": optimizer}


def save():
    """The whole state of this program, for a checkpoint."""
    file = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    return file.getvalue()


def load(_weights, state):
    """Continues from a checkpoint; a new run has none."""
    for name, saved in (torch.load(io.BytesIO(state)) if state else {}).items():
        parts[name].load_state_dict(saved)


def td_loss(_q, chosen, goal, weight):
    """Half the squared TD error. q: [B, actions]; chosen, the values of the actions taken, goal and
    weight: [B]."""
    return (weight * (goal - chosen).square() / 2).mean()


def update(batch, loss_function):
    """One update; returns loss and TD errors."""
    observation, last, action, weight = map(torch.from_numpy, (
        batch.observation, batch.next_observation, batch.action, batch.weight))
    rewards, factors = map(torch.from_numpy, batch.returns(gamma=0.99))
    with torch.no_grad():
        best = online(last).argmax(1, keepdim=True)
        goal = rewards + factors * target(last).gather(1, best)[:, 0]
    q = online(observation)
    chosen = q.gather(1, action.long()[:, None])[:, 0]
    loss = loss_function(q, chosen, goal, weight)
    # Small final steps, because the last checkpoint is evaluated.
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * max(0.01, 1 - batch.updates / UPDATES)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(online.parameters(), 10)
    optimizer.step()
    if batch.updates % 100 == 0:
        target.load_state_dict(online.state_dict())
    return loss, (goal - chosen).abs()


def main(loss_function=td_loss):
    """Trains until the budget of the config is used up."""
    torch.set_num_threads(1)
    config = pathlib.Path(__file__).with_name("cartpole.toml")
    with troop.Learner(config, save=save, load=load, overwrite=True) as learner:
        for batch in learner:
            loss, error = update(batch, loss_function)
            batch.done(loss, error, weights=online.state_dict())
    print(f"return {learner.run.result['final_return_mean']:.1f}")


if __name__ == "__main__":
    main()
