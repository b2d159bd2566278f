#include "core/config_schema.h"

namespace troop {
namespace {

void VisitActor(Config::ActorKeys& c, ConfigVisitor& v) {
  v.Visit({"actor.envs", "Environments of each actor, stepped together.", Between(1, 2048)},
          c.envs);
  v.Visit({"actor.epsilon_base",
           "Environment i of N explores with ε_i = base^(1 + alpha·i/(N-1)) (Horgan et al. 2018).",
           Between(0, 1)},
          c.epsilon_base);
  v.Visit({"actor.epsilon_alpha", "The exponent's alpha in ε_i: how far the ladder reaches down.",
           AtLeast(0)},
          c.epsilon_alpha);
  v.Visit({.name = "actor.epsilon_steps",
           .doc = "Agent steps of the whole fleet, after actor.warmup_steps, over which the ε of "
                  "all environments goes from epsilon_from to epsilon_to (Nair et al. 2015), in "
                  "place of the ladder; 0: the ladder.",
           .range = Between(0, kConfigMany),
           .whole = true},
          c.epsilon_steps);
  v.Visit(
      {"actor.epsilon_from", "With actor.epsilon_steps: the ε of the first step.", Between(0, 1)},
      c.epsilon_from);
  v.Visit({"actor.epsilon_to", "With actor.epsilon_steps: the ε of the last of them, and after.",
           Between(0, 1)},
          c.epsilon_to);
  v.Visit({"actor.noise_sigma",
           "dpg: environment i of N adds normal noise of σ_i = sigma^(1 + alpha·i/(N-1)) halves of "
           "an action's range to it.",
           Between(0, 1)},
          c.noise_sigma);
  v.Visit({"actor.noise_alpha", "dpg: the exponent's alpha in σ_i; 0: all have the same noise.",
           AtLeast(0)},
          c.noise_alpha);
  v.Visit({"actor.n_step", "Steps of reward before the bootstrap.", Between(1, 1024)}, c.n_step);
  v.Visit(
      {"actor.refresh_steps", "Agent steps of one environment between two looks for newer weights.",
       Between(1, kConfigMany)},
      c.refresh_steps);
  v.Visit({"actor.push_items", "Items that are sent to the replay at once.", Between(1, 65536)},
          c.push_items);
  v.Visit({"actor.push_window", "Pushes in flight before the actor waits for the replay.",
           Between(1, 1024)},
          c.push_window);
  v.Visit({"actor.lease_steps",
           "Agent steps of the budget that an actor takes at once; the budget stays exact.",
           Between(1, kConfigMany)},
          c.lease_steps);
  v.Visit({.name = "actor.warmup_steps",
           .doc = "Agent steps of the whole fleet that act uniformly at random first.",
           .range = Between(0, kConfigMany),
           .whole = true},
          c.warmup_steps);
  v.Visit({"actor.copies",
           "How often each item is put into the replay: as fresh as that many times the actors "
           "keep it, without what they would see (the control in Horgan et al. 2018).",
           Between(1, 1024)},
          c.copies);
  v.Visit({.name = "actor.inference",
           .doc = "Who chooses actions: each actor with weights of its own, or batched for all of "
                  "them on servers (docs/design/scaling.md).",
           .choices = {"local", "server"}},
          c.inference);
}

void VisitInference(Config::InferenceKeys& c, ConfigVisitor& v) {
  v.Visit({"inference.servers",
           "With actor.inference = \"server\": processes that choose actions; actor i asks number "
           "i modulo so many.",
           Between(1, 1024)},
          c.servers);
  v.Visit({"inference.batch_max", "Observations that are computed at once, at most.",
           Between(1, 65536)},
          c.batch_max);
  v.Visit({"inference.wait_s",
           "A batch that is not full waits so long for others, unless all who ask are there.",
           Between(0, 1)},
          c.wait_s);
  v.Visit({"inference.refresh_s", "Seconds between two looks for newer weights.", Between(0, 3600)},
          c.refresh_s);
  v.Visit({.name = "inference.device",
           .doc = "Where actions are computed; auto: on a GPU if there is one.",
           .choices = {"auto", "cpu", "cuda"}},
          c.device);
}

}  // namespace

void VisitActing(Config& config, ConfigVisitor& visitor) {
  VisitActor(config.actor, visitor);
  VisitInference(config.inference, visitor);
}

}  // namespace troop
