"""Regressions of columns of every kind: numbers with noise of any shape, yes/no, labels, ordered labels, counts.

``likelihoods`` has the log density of a column's rows with its derivatives, ``laplace`` the evidence of many sets of
parents at once. All weights are standard normal in the same units, the information that one row has where nothing is
known of the parents. So evidences of columns of different kinds can be compared, and no kind is preferred as cause or
effect. ``vcuda.models.mixed`` takes them for tables of several kinds.
"""
