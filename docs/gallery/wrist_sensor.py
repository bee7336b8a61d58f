# # Activity from a wrist sensor
#
# An accelerometer on the wrist records two channels, twenty times per second. The wearer's
# activity shows less in the level of the signal than in how it *moves*: walking swings, typing
# trembles, rest is flat. An autoregressive family describes each step given the two before it, and
# so distinguishes a swing from a tremble of the same size. The recording is simulated, so the true
# activity is known.

import matplotlib.pyplot as plt
import numpy as np

import sojourn as sj

rng = np.random.default_rng(3)
activities = ["rest", "walking", "typing"]
swing = {"rest": (0.7, 0.0), "walking": (1.88, -0.97), "typing": (-0.5, -0.4)}
noise = {"rest": 0.03, "walking": 0.10, "typing": 0.25}


def recording(n_stays=6):
    values, labels = [np.zeros(2), np.zeros(2)], [0, 0]
    for _ in range(n_stays):
        activity = int(rng.integers(3))
        first, second = swing[activities[activity]]
        for _ in range(int(rng.integers(60, 160))):
            push = rng.normal(0.0, noise[activities[activity]], 2)
            values.append(first * values[-1] + second * values[-2] + push)
            labels.append(activity)
    return np.array(values), np.array(labels)


recordings, labels = zip(*(recording() for _ in range(12)), strict=True)

model = sj.HMM(
    n_states=3,
    emission=sj.AutoregressiveGaussian(order=2),
    batch_size=3,
    n_passes=15,
    n_init=3,
    random_state=0,
)
model.fit(list(recordings))

found, true = np.concatenate(model.predict(list(recordings))), np.concatenate(labels)
overlap = np.array([[np.sum((found == k) & (true == j)) for j in range(3)] for k in range(3)])
agreement = overlap.max(axis=1).sum() / len(true)
names = {k: activities[overlap[k].argmax()] for k in range(3)}
print(f"{agreement:.1%} of the steps are in the right activity: {names}")

# A Gaussian of single steps cannot do that: it models where the hand is, not how it moves.

plain = sj.HMM(n_states=3, emission=sj.Gaussian(), batch_size=3, n_passes=15, random_state=0)
seen = np.concatenate(plain.fit(list(recordings)).predict(list(recordings)))
overlap = np.array([[np.sum((seen == k) & (true == j)) for j in range(3)] for k in range(3)])
agreement_plain = overlap.max(axis=1).sum() / len(true)
print(f"with a plain Gaussian: {agreement_plain:.1%}")

figure, axes = plt.subplots(2, 1, figsize=(10, 5), layout="constrained", sharex=True)
sj.plot.sequence(model, recordings[0], columns=["x", "y"], ax=axes[0])
axes[0].set_title("autoregressive", loc="right", fontsize=10)
sj.plot.sequence(plain, recordings[0], columns=["x", "y"], ax=axes[1])
axes[1].set_title("plain Gaussian", loc="right", fontsize=10)

# **What one learns.** Choose the family by what distinguishes the states. Here that is the
# dynamics: the coefficients of the learned regressions (`coefs_`) are those of a slow swing, of a
# tremble and of rest, and the coloured bands follow the true activity.
