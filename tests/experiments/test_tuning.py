"""What `tuned` is worth on text."""

import sojourn as sj
from experiments.reproduce.corpus import read_corpus


def test_tuned_is_better_on_text():
    corpus = read_corpus(None)
    scores = {}
    for tuned in (False, ("steps",), ("concentration", "base"), True):
        fitted = sj.HMM(
            20,
            sj.Categorical(len(corpus.vocabulary)),
            batch_size=100,
            n_passes=5,
            tuned=tuned,
            random_state=0,
        ).fit(corpus.train)
        scores[tuned] = fitted.score(corpus.held_out, per_step=True)
    assert scores[True] > scores[False] + 0.1
    assert min(scores[("steps",)], scores["concentration", "base"]) > scores[False]
