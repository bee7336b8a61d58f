# # Earthquakes per year
#
# Strong earthquakes are counted per year. A single Poisson rate does not fit: quiet and active
# decades alternate, and the counts vary more than one rate allows. An HMM with Poisson
# emissions finds the phases. The series is simulated, 200 years with three rates.

import matplotlib.pyplot as plt
import numpy as np

import sojourn as sj

rng = np.random.default_rng(7)
rates, stay = np.array([12.0, 20.0, 31.0]), 0.93
phase = np.empty(200, int)
phase[0] = 1
for year in range(1, 200):
    phase[year] = phase[year - 1] if rng.random() < stay else rng.integers(3)
counts = rng.poisson(rates[phase])
print(f"mean {counts.mean():.1f}, variance {counts.var():.1f}: more than a single Poisson allows")

# A single short series is learned from in one batch, with full steps: `batch_size=None` and
# `forgetting_rate=0`. The best of ten restarts is kept.


def fit(n_states):
    model = sj.HMM(
        n_states,
        sj.Poisson(),
        batch_size=None,
        forgetting_rate=0.0,
        n_passes=60,
        n_init=10,
        random_state=0,
    )
    return model.fit(counts)


models = {k: fit(k) for k in (1, 2, 3, 4)}
criteria = {k: model.bic(counts) for k, model in models.items()}
best = min(criteria, key=criteria.get)
print(f"BIC is lowest with {best} states")

model = models[3]
order = np.argsort(model.lambdas_[:, 0])
print("rates:", model.lambdas_[order, 0].round(1), "in truth:", rates)

# The posterior probability of each state, year by year, shows how certain the phases are.

figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 4.6), layout="constrained", sharex=True)
years = np.arange(1825, 2025)
top.vlines(years, 0, counts, color="0.6", lw=1.5)
top.plot(years, model.lambdas_[model.predict(counts), 0], color="#d55e00", drawstyle="steps-mid")
top.set_ylabel("earthquakes")
bottom.stackplot(
    years,
    model.predict_proba(counts)[:, order].T,
    colors=["#56b4e9", "#e69f00", "#d55e00"],
    labels=[f"{rate:.0f} per year" for rate in model.lambdas_[order, 0]],
)
bottom.set_ylabel("probability")
bottom.set_xlabel("year")
bottom.legend(loc="upper left", ncols=3, fontsize=8)

# **What one learns.** Three rates and the years in which they applied, with their uncertainty.
# With 200 numbers BIC may prefer fewer states than there were: a short series has little evidence
# for a phase that hardly occurred.
