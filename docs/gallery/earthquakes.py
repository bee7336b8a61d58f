# # Earthquakes per year
#
# Strong earthquakes (magnitude 7 or more) in the world, counted per year from 1900 to 2006. A
# single Poisson rate does not fit: quiet and active decades alternate, and the counts vary more
# than one rate allows. An HMM with Poisson emissions finds the phases. The series is the textbook
# example of W. Zucchini and I. L. MacDonald, *Hidden Markov Models for Time Series* (2009), whose
# results are published; `sojourn demo --files` writes it as `earthquakes.csv`.

import matplotlib.pyplot as plt
import numpy as np

import sojourn as sj
from sojourn.demo import EARTHQUAKES, FIRST_YEAR

counts = EARTHQUAKES
years = FIRST_YEAR + np.arange(len(counts))
print(f"{len(counts)} years, mean {counts.mean():.1f}, variance {counts.var():.1f}")

# How many phases? Each number of states is fitted with the defaults: full batches, as the series
# is short, until the likelihood rises no more, and from several starting points.

models = {k: sj.HMM(k, sj.Poisson(), random_state=0).fit(counts) for k in (1, 2, 3, 4)}
for k, fitted in models.items():
    score = fitted.score(counts)
    print(f"{k} states: log likelihood {score:.1f}, AIC {fitted.aic(counts):.1f}")

# Three states have the lowest AIC, as in the book. Its three rates are the maximum of the
# likelihood, −328.53; `fit` returns posterior means, which its prior draws a little towards the
# middle. Where the prior is outweighed, here by the same series a hundred times over, both agree.
# That fit begins with the three states found.

published = np.array([13.13, 19.71, 29.71])
model = models[3]
order = np.argsort(model.lambdas_[:, 0])
rates = model.lambdas_[order, 0]
outweighed = sj.HMM(3, sj.Poisson(), batch_size=None, init=model.statistics_, n_passes=50)
outweighed.fit([counts] * 100)
maximum = np.sort(outweighed.lambdas_[:, 0])
best = outweighed.score(counts)
print(f"{'published':>20} {published.round(2)} log likelihood -328.53")
print(f"{'posterior means':>20} {rates.round(2)} log likelihood {model.score(counts):.2f}")
print(f"{'prior outweighed':>20} {maximum.round(2)} log likelihood {best:.2f}")

# The posterior probability of each state, year by year, shows how certain the phases are.

figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 4.6), layout="constrained", sharex=True)
top.vlines(years, 0, counts, color="0.6", lw=1.5)
top.plot(years, model.lambdas_[model.predict(counts), 0], color="#d55e00", drawstyle="steps-mid")
top.set_ylabel("earthquakes")
bottom.stackplot(
    years,
    model.predict_proba(counts)[:, order].T,
    colors=["#56b4e9", "#e69f00", "#d55e00"],
    labels=[f"{rate:.0f} per year" for rate in rates],
)
bottom.set_ylabel("probability")
bottom.set_xlabel("year")
bottom.legend(loc="upper left", ncols=3, fontsize=8)

# What comes next is a [forecast](../now-and-next.md): the phase of 2006 may last or end.

ahead = model.forecast(counts, steps=5, quantiles=(0.05, 0.95), random_state=0)
for i, (low, high) in enumerate(zip(*ahead.quantiles[:, 0, :, 0], strict=True)):
    print(f"{years[-1] + 1 + i}: {low:.0f} to {high:.0f} earthquakes with 90% probability")

# **What one learns.** Three rates and the years in which they applied, with their uncertainty: the
# 1940s were active, and the last quarter of the century was quiet. The rates are those of the
# book, 13.1, 19.7 and 29.7 earthquakes per year.
