# # How SCVI works
#
# A short explanation in pictures. [The mathematics](mathematics.md) has every formula.
#
# ## Everything is in the counts
#
# An HMM has transition probabilities θ and emission parameters φ. With conjugate priors, *counts*
# are sufficient statistics for them: how often each state followed each other state, and what was
# emitted in which state. *Mean-field* variational inference (SVI) keeps a distribution over θ and φ
# in addition to that over states, and treats the two as independent. *Collapsed* inference
# integrates θ and φ out first. What is left is a distribution over states alone, and expected
# counts.
#
# That changes one thing in the algorithm: the weight that a transition or symbol with an expected
# count c gets when states are inferred. Collapsed, it is the predictive probability; mean-field,
# the exponential of an expected logarithm, which penalises what is rare.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import digamma

import sojourn as sj

counts = np.geomspace(0.01, 100, 200)
prior, total = 0.1, 1000.0
collapsed = (prior + counts) / total
mean_field = np.exp(digamma(prior + counts) - digamma(total))

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.loglog(counts, collapsed, color="#0072b2", label="collapsed: (a + c) / total, eq (1)")
ax.loglog(counts, mean_field, color="#d55e00", label="mean-field: exp ψ(a + c) / …, eq (1')")
ax.set_xlabel("expected count c")
ax.set_ylabel("weight in the E-step")
ax.set_ylim(1e-8, 1)
ax.legend(frameon=False)

# For large counts the two agree. For small ones the mean-field weight drops sharply: a symbol with
# an expected count well below one weighs orders of magnitude less than its probability. Text is
# full of such symbols, and so are any data with many states.

gap = float(collapsed[counts < 0.5].mean() / mean_field[counts < 0.5].mean())
print(f"below half a count, collapsed weights are {gap:.0f} times mean-field ones on average")

# ## One minibatch at a time
#
# The stochastic part is the same for both. Take M of N sequences, run forward-backward, and blend
# the expected counts, scaled up by N/M, into the running ones:
#
# > E[C] ← (1 − ρ) E[C] + ρ (N/M) Σ E[Cⁿ]   (3)
#
# with a decreasing step size ρ. The first updates forget the random start quickly; the later ones
# average over many minibatches.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
updates = np.arange(1, 101)
for rate, color in ((0.5, "#0072b2"), (0.7, "#009e73"), (0.9, "#e69f00")):
    steps = (1.0 + updates) ** -rate
    left.plot(updates, steps, color=color, label=f"rate {rate}")
    right.semilogy(updates, np.maximum(np.cumprod(1 - steps), 1e-12), color=color)
right.axhline(0.02, color="0.5", ls=":")
right.annotate("below this, no FitWarning", (100, 0.022), ha="right", va="bottom", fontsize=8)
left.set_ylabel("step size ρ")
right.set_ylabel("share of the random start left")
for ax in (left, right):
    ax.set_xlabel("updates")
left.legend(frameon=False)

# ## What it gains
#
# The same sentences, settings and minibatches in the same order: only the weights of the first
# figure differ.

from sojourn.demo import documentation_sentences

sentences = documentation_sentences()
train, held_out = sentences[::2], sentences[1::10]
vocabulary = sj.Vocabulary.from_sequences(train, min_count=2)


def fit(inference):
    emission = sj.Categorical(vocabulary=vocabulary)
    model = sj.HMM(20, emission, inference=inference, batch_size=50, n_passes=10, random_state=0)
    return model.fit(train, validation=held_out)


models = [fit("scvi"), fit("svi")]
sj.plot.learning_curve(*models, labels=["SCVI", "SVI"])

ahead = models[0].history_[-1]["score"] - models[1].history_[-1]["score"]
print(f"SCVI is {ahead:.3f} nats per word ahead on held-out sentences")

# This is a small corpus, in one run; `experiments/` has larger ones, with several seeds.
#
# ## The number of states
#
# The HDP-HMM has a prior over *how many* states there are. Its weights π say how popular each state
# is as a destination, from whichever state; they are learned from the expected number of *tables*,
# which counts how often a transition was newly drawn from π. Weights that stay near zero belong to
# states that the data do not need.

hdp = sj.HDPHMM(20, sj.Categorical(vocabulary=vocabulary), batch_size=50, random_state=0).fit(train)
sj.plot.sticks(hdp)
