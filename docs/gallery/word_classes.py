# # Word classes
#
# Which words behave alike? An HMM that reads sentences puts words that stand in the same places
# into the same state, and finds something like parts of speech without being told of any. The
# text here is Python's own language documentation, which comes with every Python.

import matplotlib.pyplot as plt

import sojourn as sj
from sojourn.demo import documentation_sentences

sentences = documentation_sentences()
train, held_out = sentences[::2], sentences[1::10]

# Words that occur only once tell nothing about their company: they share one symbol, `<unk>`.

vocabulary = sj.Vocabulary.from_sequences(train, min_count=2)
model = sj.HDPHMM(
    n_states=20,
    emission=sj.Categorical(vocabulary=vocabulary),
    batch_size=50,
    n_passes=15,
    random_state=0,
)
model.fit(train, validation=held_out)
print(f"{model.n_states_} states, held-out score {model.history_[-1]['score']:.3f} a word")

# The states, largest first, with the words they like best, and the ways from one to the next.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 5), layout="constrained", width_ratios=[3, 2]
)
sj.plot.states(model, 14, ax=left)
sj.plot.graph(model, 12, ax=right)

# **What one learns.** Articles, prepositions, forms of *to be*, modal verbs and nouns come apart
# by themselves. The arrows read like grammar: article → noun → preposition → article. Rare words
# are not lost: `<unk>` sits with the nouns and the participles, where new words of a language
# appear.
