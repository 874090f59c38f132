"""Numbered items of the papers, extracted once, in the order of each paper.

Appendices that state an item again under its own number have it once. Equations within proofs are
listed with the rest; the short version of the element-level paper has its own list.
"""

ELEMENT = (
    "Figure 1, Definitions 2.1 to 2.2, Equations 1 to 3, Definition 2.3, Examples 1 to 2, "
    "Corollaries 2.1 to 2.4, Equation 4, Corollary 2.5, Equations 5 to 7, Lemma 3.1, Equation 8, "
    "Proposition 1, Equation 9, Lemma 3.2, Proposition 2, Equations 10 to 14, Assumption A1, "
    "Theorem 1, Algorithm 1, Equation 15, Corollaries 3.1 to 3.2, Equation 16, Assumption A2, "
    "Proposition 3, Example 3, Figures 2 to 5, Lemmas B.1 to B.2, Equations 17 to 18, "
    "Lemmas C.1 to C.2, Equations 19 to 24, Lemmas D.1 to D.5, Equations 25 to 28"
)
ELEMENT_SHORT = (
    "Figure 1, Definition 0.1, Equations 1 to 2, Definition 0.2, Examples 1 to 2, Equations 3 to 5, "
    "Proposition 1, Equations 6 to 7, Algorithm 1, Equation 8, Proposition 2, Figures 2 to 3"
)
LEARNING = (
    "Definition 1, Equations 1 to 2, Assumptions A1 to A4, Equations 3 to 5, Definitions 2 to 4, "
    "Algorithm 1, Theorem 1, Algorithm 2, Theorem 2, Equation 6, Corollary 1, Theorem 3, "
    "Proposition 1, Equation 7, Algorithm 3, Theorem 4, Corollary 2, Theorems 5 to 6, Algorithm 4, "
    "Equations 8 to 9, Lemma 1, Equation 10, Algorithm 5, Theorem 7, Equation 11, Corollary 3, "
    "Equation 12, Corollary 4, Remark 1, Theorem 8, Equation 13, Theorems 9 to 10, Equations 14 to 17, "
    "Algorithm 6, Lemma 2, Equation 18, Lemma 3, Proposition 2, Corollary 5, Algorithm 7, "
    "Proposition 3, Equations 19 to 21, Proposition 4, Equation 22, Proposition 5, Equation 23, "
    "Proposition 6, Corollary 6, Lemma 4, Proposition 7, Equations 24 to 26"
)
SHUFFLE = (
    "Table 1, Definitions 2.1 to 2.2, Facts 2.3 to 2.4, Definitions 2.5 to 2.12, Algorithm 1, "
    "Lemma 3.1, Algorithm 2, Theorem 3.2, Lemma 3.3, Algorithm 3, Theorem 4.1, Lemma 4.2, Theorem 4.3, "
    "Algorithm 4, Lemma 4.4, Definition 4.5, Lemma 4.6, Theorems 4.7 to 4.8, Algorithm 5, Theorem 4.9, "
    "Lemma A.1, Equation 1, Lemmas A.2 to A.3, Definition A.4, Lemma A.5, Theorem A.6, "
    "Equations 2 to 3, Definition A.7, Claim A.8, Corollary A.9, Definition B.1, Lemma B.2, "
    "Equations 4 to 5, Lemma B.3, Equation 6, Lemmas B.4 to B.7, Corollaries B.8 to B.11, "
    "Definitions C.1 to C.2, Equation 7, Theorem C.3, Lemma C.4, Algorithm 6, Lemma C.5"
)
SCO = (
    "Equation 1, Table 1, Definitions 2.1 to 2.3, Lemmas 2.4 to 2.5, Definition 2.6, Lemma 2.7, "
    "Definition 3.1, Equation 2, Algorithm 1, Theorem 3.2, Lemmas 3.3 to 3.7, Theorem 4.1, "
    "Algorithm 2, Remarks 4.2 to 4.3, Equation 3, Lemmas 4.4 to 4.9, Proposition 4.10, "
    "Algorithm 3, Theorem 4.11, Lemma A.1, Algorithm 4, Equation 4"
)
#: By page, then by the heading of the table that lists them.
CONTENTS = {
    "element": {"Item by item": ELEMENT, "Item by item: the short version": ELEMENT_SHORT},
    "user-level-learning": {"Item by item": LEARNING},
    "shuffle-sco": {"Item by item": SHUFFLE},
    "user-level-sco": {"Item by item": SCO},
}
#: Allowed fields of a row's items.
STATES = ("works", "corrected", "false", "weaker than printed", "not a claim")
