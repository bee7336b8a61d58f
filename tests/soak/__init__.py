"""The soak: random inputs, crafted files and kills, for as long as one likes.

``make soak`` runs it; ``python -m tests.soak --help`` says how to run parts of it.  A case is plain
JSON that a part makes from random numbers and runs.  Failures are shrunk by Hypothesis and kept in
``tests/soak/cases``, where `test_soak.py` runs them again, beside a short run of every part.
"""
