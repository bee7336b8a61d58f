# # Web sessions
#
# A shop logs which kind of page a visitor opens. Sessions look like noise, one page after another,
# but behind them are intentions: looking around, comparing, buying, seeking help. The log is
# simulated from these four.

import matplotlib.pyplot as plt
import numpy as np

import sojourn as sj

pages = ["home", "search", "category", "product", "reviews", "cart", "checkout", "help", "contact"]
habits = {
    "look around": [30, 15, 40, 12, 1, 1, 0, 1, 0],
    "compare": [2, 15, 8, 45, 28, 1, 0, 1, 0],
    "buy": [1, 1, 1, 6, 2, 45, 43, 1, 0],
    "seek help": [6, 8, 1, 1, 1, 2, 1, 50, 30],
}
next_intention = np.array(
    [
        [0.80, 0.15, 0.01, 0.04],
        [0.08, 0.80, 0.11, 0.01],
        [0.03, 0.02, 0.93, 0.02],
        [0.10, 0.02, 0.03, 0.85],
    ]
)
chances = np.array(list(habits.values()), float)
chances /= chances.sum(axis=1, keepdims=True)
rng = np.random.default_rng(0)


def session():
    z = int(rng.choice(4, p=[0.7, 0.15, 0.05, 0.1]))
    clicks = []
    for _ in range(int(rng.integers(4, 25))):
        clicks.append(pages[rng.choice(9, p=chances[z])])
        z = int(rng.choice(4, p=next_intention[z]))
    return clicks


sessions = [session() for _ in range(1000)]

# How many intentions are there? Held-out sessions answer that. Learning can get stuck in a local
# optimum, so each model is the best of five restarts.

model = sj.HMM(
    n_states=4,
    emission=sj.Categorical(),
    batch_size=None,
    forgetting_rate=0.0,
    n_passes=30,
    n_init=5,
    random_state=1,
)
found = sj.select_n_states(model, sessions, n_states=[1, 2, 3, 4, 5, 6], n_splits=2)
print(f"best: {found.best.n_states} states; enough: {found.simplest.n_states}")

model.set_params(n_states=found.simplest.n_states).fit(sessions)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
found.plot(ax=left)
sj.plot.states(model, n_symbols=3, ax=right)

# How many sessions begin with the intention to buy?

starts = model.startprob_
buying = int(model.emissionprob_[:, model.emission_.vocabulary["checkout"]].argmax())
print(f"{starts[buying]:.0%} of the sessions begin with the intention to buy")

# **What one learns.** The curve rises steeply up to the true number of intentions and is flat
# after it: more states do not predict better. The pages of each state show what the visitor
# intends, and `predict` shows, click by click, when comparing turns into buying.
