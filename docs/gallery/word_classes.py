# # Word classes
#
# Which words behave alike? An HMM fitted to sentences assigns words that occur in similar contexts
# to the same state, and so finds something like parts of speech without any labels. The text here
# is Python's own language documentation, which comes with every Python.

import matplotlib.pyplot as plt

import sojourn as sj
from sojourn.demo import documentation_sentences

sentences = documentation_sentences()
train, held_out = sentences[::2], sentences[1::10]

# Words that occur only once say little about their context: they share one symbol, `<unk>`.

vocabulary = sj.Vocabulary.from_sequences(train, min_count=2)
model = sj.HDPHMM(
    n_states=20,
    emission=sj.Categorical(vocabulary=vocabulary),
    batch_size=50,
    n_passes=15,
    random_state=0,
)
model.fit(train, validation=held_out)
print(f"{model.n_states_} states, held-out score {model.history_[-1]['score']:.3f} per word")

# The states, largest first, with the words that tell them apart, and the strongest transitions.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 5), layout="constrained", width_ratios=[3, 2]
)
sj.plot.states(model, 14, ax=left)
sj.plot.graph(model, 12, ax=right)

# **What one learns.** Articles, prepositions, forms of *to be*, modal verbs and nouns are
# separated without supervision. The arrows read like grammar: article → noun → preposition →
# article. Rare words are not lost: `<unk>` is likely in the states of nouns and participles, where
# new words appear, but a state is named by the words that are likelier in it than elsewhere.
