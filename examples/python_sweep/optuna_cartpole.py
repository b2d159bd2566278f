#!/usr/bin/env python3
"""Bayesian optimization of two settings with Optuna: each trial is a run of Troop.

    optuna_cartpole.py FOLDER [TRIALS]      continues the study in FOLDER
"""
import pathlib
import sys

import optuna
import troop

CONFIG = {
    "env.id": "CartPole-v1",
    "network.layers": [{"type": "linear", "units": 64}],
    "actor.envs": 8,
    "replay": {"capacity_items": 20_000, "min_items": 500},
    "evaluator.final_episodes": 20,
    "run.total_steps": 10_000,
}


def objective(trial):
    """The mean return of the final evaluation."""
    settings = {
        "optimizer.learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
        "replay.samples_per_insert": trial.suggest_int("samples_per_insert", 4, 32, log=True),
        "name": f"trial-{trial.number}", "log.dir": sys.argv[1], "seed": trial.number,
    }
    run = troop.train(CONFIG, settings, progress=False, overwrite=True)
    return run.result["final_return_mean"]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    journal = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
    study = optuna.create_study(study_name="cartpole", direction="maximize", load_if_exists=True,
                                storage=optuna.storages.JournalStorage(journal))
    study.optimize(objective, n_trials=int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    print(f"best return {study.best_value:.1f} with {study.best_params}")


if __name__ == "__main__":
    main()
