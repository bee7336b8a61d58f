# # Chromatin marks
#
# Along a genome, each of a handful of marks is either present or absent in each bin of 200 letters.
# Recurring combinations of marks are states: active gene starts, gene bodies, enhancers, silent
# regions. The data are simulated from five such states, so that the answer is known.

import matplotlib.pyplot as plt
import numpy as np

import sojourn as sj

marks = ["H3K4me3", "H3K4me1", "H3K27ac", "H3K36me3", "H3K27me3"]
true_marks = np.array(
    [
        [0.95, 0.05, 0.80, 0.05, 0.02],  # active start
        [0.03, 0.90, 0.45, 0.05, 0.02],  # enhancer
        [0.02, 0.10, 0.05, 0.70, 0.02],  # gene body
        [0.02, 0.05, 0.02, 0.02, 0.70],  # silenced
        [0.01, 0.01, 0.01, 0.01, 0.02],  # nothing
    ]
)
stay = np.array([0.85, 0.90, 0.96, 0.97, 0.98])
rng = np.random.default_rng(0)


def chromosome(n_bins):
    states = np.empty(n_bins, int)
    states[0] = 4
    for t in range(1, n_bins):
        moves = rng.random() > stay[states[t - 1]]
        others = [k for k in range(5) if k != states[t - 1]]
        states[t] = rng.choice(others) if moves else states[t - 1]
    return states


truth = [chromosome(1500) for _ in range(20)]
data = [(rng.random((len(z), 5)) < true_marks[z]).astype(int) for z in truth]

# One entry in twenty could not be measured. A masked entry is missing, and is integrated out.
# The result depends on the initial values, so the best of five restarts is kept.

data = [np.ma.masked_array(x, rng.random(x.shape) < 0.05) for x in data]
model = sj.HMM(
    n_states=5, emission=sj.Bernoulli(), batch_size=4, n_passes=10, n_init=5, random_state=0
)
model.fit(data)

# The order of the states is arbitrary: each is matched with the true state that it overlaps most.

decoded, true = np.concatenate(model.predict(data)), np.concatenate(truth)
overlap = np.array([[np.sum((decoded == k) & (true == j)) for j in range(5)] for k in range(5)])
agreement = overlap.max(axis=1).sum() / len(true)
print(f"{agreement:.1%} of the bins are in the right state")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
order = np.argsort(-model.state_shares_)
shades = left.imshow(model.emissionprob_[order], cmap="Blues", vmin=0, vmax=1)
left.set_xticks(range(5), marks, rotation=30, ha="right")
left.set_yticks(range(5), [f"state {k}" for k in order])
figure.colorbar(shades, ax=left, label="probability of the mark")
sj.plot.dwell_times(model, data, ax=right)

# **What one learns.** The table of probabilities is the usual picture of chromatin states: read a
# row as *this kind of region carries these marks*. The right panel shows how long each kind of
# region is: silent stretches last for dozens of bins, gene starts for a few.
