#!/usr/bin/env python3
"""The agent of cartpole_dqn.py with a loss that Troop does not have: conservative Q-learning (Kumar
et al. 2020, eq. 4), which keeps the values of actions that were not taken low."""
import cartpole_dqn

ALPHA = 0.1


def conservative_loss(q, chosen, goal, weight):
    """The TD loss, and ALPHA times the gap between all actions' values and those taken."""
    gap = (q.logsumexp(1) - chosen).mean()
    return cartpole_dqn.td_loss(q, chosen, goal, weight) + ALPHA * gap


if __name__ == "__main__":
    cartpole_dqn.main(conservative_loss)
