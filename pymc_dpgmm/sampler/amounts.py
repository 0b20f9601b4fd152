"""How much of everything a draw has: the constants that schedule moves, each with the benchmark that has set it.

What tuning pays for moves of a kind stands in the record of the kind (``Paying`` in ``sampler/moves/``).

A change of any of them changes draws, and none changes what the draws converge to. Run the benchmark that is
named before and after a change, and ``make budgets``. Constants that are part of an algorithm, such as the size of
blocks, stand with it.
"""

from typing import NamedTuple

# --- Data of any size: benchmarks/run.py (make bench), effective draws per second of small data


class Sweeps(NamedTuple):
    """How often small data is swept in a draw: until it holds ``pairs`` (row, cluster) pairs, ``most`` times."""

    pairs: int
    most: int


# A draw of labels alone costs about 80 microseconds outside its moves. After more than a few sweeps, draws are
# hardly correlated any more.
SWEEPS_ALONE = Sweeps(25_000, 4)
# Beside NUTS a draw costs a millisecond or more, which labels that lag behind would waste. Set by
# benchmarks/truncated.py.
SWEEPS_BESIDE_OTHERS = Sweeps(150_000, 8)
# How often latent rows are drawn with their labels in a draw: rows of so many numbers more often, which costs them
# less than the rest of the draw. Set by benchmarks/truncated.py: in its regression four times give five times as
# many effective draws as two. With fewer numbers all else has a tenth fewer of them, and rows no more.
REDRAWS_OF_ROWS, REDRAWS_OF_FEW_ROWS, FEW_NUMBERS = 2, 4, range(80, 301)
# Scans of at most this number of rows are metropolized: the number of clusters and the entropy have up to 30 %
# more effective draws then, for 5 % more time. With more rows they have no more.
MOST_METROPOLIZED = 10_000

# --- Splits and merges: benchmarks/split_merge.py (make bench-split-merge)

# Random moves beside leader sweeps. They cost little, since they leave large clusters alone.
RANDOM_BESIDE_LEADERS = 10
# Random moves divide no clusters of more rows: they would take the time of all rows, and never be accepted. Set by
# benchmarks/many_rows.py.
LARGEST_DIVIDED = 1_000
# Moves of a kind whose number tuning chooses, before any has been tried. The share of accepted ones begins as what
# is just worth while, with the weight of TRIED_BEFORE moves. A sweep has MOST_MOVES at most.
NUMBER_BEFORE = 3
TRIED_BEFORE = 50
MOST_MOVES = 40
# Clusters that a carving lets leave have up to LEAST_CARVED rows, or twice, four times, ... as many, up to
# MOST_CARVED: drawn for every move. A sweep has MOST_CARVINGS at most, and none with fewer clusters than
# CLUSTERS_FOR_CARVINGS: what holds few clusters back is not that small ones stay where they are. Set by
# benchmarks/hard.py.
LEAST_CARVED, MOST_CARVED, MOST_CARVINGS, CLUSTERS_FOR_CARVINGS = 4, 256, 100, 50
# A reallocation is guided by the LEAST_GUIDE rows most like one, or twice, four times, ... as many, up to
# MOST_GUIDE, or by a cluster that a search has seen, of LEAST_GUIDING rows or more. Of a cluster, up to MOST_LOOSE
# rows leave its core, or join it, and up to MOST_CANDIDATES may. A sweep has MOST_REALLOCATIONS at most;
# REALLOCATIONS_OF_SEARCH go with the scans of a search. Set by benchmarks/hard.py.
LEAST_GUIDE, MOST_GUIDE, LEAST_GUIDING, MOST_LOOSE, MOST_CANDIDATES = 8, 128, 4, 64, 256
MOST_REALLOCATIONS, REALLOCATIONS_OF_SEARCH = 40, 100
# Cost of such a move, in (row, cluster) pairs of a Gibbs scan: by itself, and for each row that it divides.
PAIRS_PER_MOVE = 70
PAIRS_PER_ROW = 1

# --- The search that tuning begins with: benchmarks/split_merge.py (make bench-split-merge)

# Tuning draws that search, at most, and the largest share of all tuning draws.
SEARCH_DRAWS = 100
SEARCH_SHARE = 2 / 3
# A search is over when no cluster of this share of the rows has divided or united for some draws; of a part of
# many rows, where what is missed is found later, for fewer.
SETTLED_SHARE = 0.01
SETTLED_DRAWS = 10
SETTLED_DRAWS_OF_PART = 5


class Effort(NamedTuple):
    """What a searching draw does.

    It repeats, ``rounds`` times: a search, then ``scans`` that let clusters settle into their new neighbourhood.
    Then one cluster is given up on trial, and one divided into any number, each judged after ``scans_of_trial``:
    rows need more scans to settle where clusters overlap.
    """

    rounds: int
    scans: int
    scans_of_trial: int


EFFORT = Effort(2, 3, 10)
# Times the rows of a proposed division are drawn again given the halves' statistics, the last one judged.
REFINEMENTS = 3
# The same where two clusters are divided in another way (benchmarks/hard.py): of large clusters that overlap, a
# division has to settle before it can rival the present one.
REFINEMENTS_OF_TWO = 6
# With CLUSTERS_FOR_CARVINGS clusters or more, a searching draw makes so many CHANGES_ON_TRIAL, each judged after
# SCANS_OF_CHANGE scans of the rows that it concerns. It divides a cluster into the best of STARTS_OF_HALVES pairs
# of halves, each drawn again REFINEMENTS_OF_TRIAL times; or into a core, which has a share of its rows between
# SHARES_OF_CORES and is found in STEPS_TO_CORE at most, and the others; or it gives a cluster up
# (benchmarks/hard.py).
CHANGES_ON_TRIAL, SCANS_OF_CHANGE, STARTS_OF_HALVES, REFINEMENTS_OF_TRIAL = 100, 10, 8, 40
SHARES_OF_CORES, STEPS_TO_CORE = (0.5, 0.95), 10
# Where searches from several starts end far apart, their clusters are recombined (benchmarks/hard.py), for a share
# of the tuning draws at most. They are not if the first SEARCHES_THAT_MEET, of DRAWS_OF_FIRST draws at most, are
# equally probable. Later, one of DRAWS_PER_START draws is DRAWS_OF_START draws of a search from another start: all
# rows in one cluster, or thrown into MOST_CLUSTERS_OF_START, in turn. All ends after DRAWS_IN_VAIN. The search
# before it is cut short after LONGEST_BEFORE draws. With many rows, a draw takes so long that too few are made for
# any gain.
SEARCHES_THAT_MEET, DRAWS_OF_FIRST, DRAWS_OF_START, DRAWS_PER_START, RECOMBINING_SHARE = 3, 6, 2, 2, 0.15
MOST_CLUSTERS_OF_START, ROWS_TOO_MANY_TO_RECOMBINE, DRAWS_IN_VAIN, LONGEST_BEFORE = 20, 5_000, 40, 40
# Where chains end far apart, clusters of all are put together, PUT_TOGETHER times, unless rows are too many for
# linear programs.
PUT_TOGETHER, ROWS_TOO_MANY_TO_PUT_TOGETHER = 10, 50_000
# With many clusters, exact draws find better partitions than the search has, each chain other ones. Chains compare
# these again after these shares of the tuning draws, which no search lasts to (benchmarks/hard.py).
SHARES_OF_COMPARISONS = 0.75, 0.9
# Where a base measure learns its scale, a searching draw also tries a division of a cluster along a column, the
# best or one of the DIVISIONS_TO_CHOOSE_FROM best, with a scale that fits it after ROUNDS_OF_SCALE_TRIAL draws.
# Without this, three of ten chains of spherical clusters stayed where two of three groups in 14 columns were one
# (``tests/integration/steps/test_learnt_scales.py``). The log density must gain LARGEST_CHANCE times the standard
# deviation by which two draws of the scale alone differ. A chain makes no more trials after TRIALS_IN_VAIN.
DIVISIONS_TO_CHOOSE_FROM, ROUNDS_OF_SCALE_TRIAL, LARGEST_CHANCE, TRIALS_IN_VAIN = 3, 3, 3.0, 15
# A chain goes on from another one's partition where this is more probable by so many nats: with its own, it would
# hardly ever get there. Merits are estimates, which differ by a few nats for partitions that are nearly the same.
# Fewer are enough only where clusters of all chains have been put together.
FAR_APART, NOT_FAR_APART = 20.0, 5.0
# Pieces of a cluster that is divided at once, at most: in many columns the first rows would all be pieces, which
# takes long to unite.
MOST_PIECES = 40

# --- Many rows: benchmarks/many_rows.py (make bench-many-rows)

# With this number of rows or more, leader sweeps take the place of most of the collapsed scans; in exact draws of
# MANY_CLUSTERS or more, only with ROWS_FOR_LEADERS_OF_MANY. Parameters hold labels of many clusters that overlap
# back: of 30,000 rows, scans have two to ten times as many effective draws a second (benchmarks/hard.py).
ROWS_FOR_LEADERS, ROWS_FOR_LEADERS_OF_MANY = 20_000, 50_000
# How many times less than a collapsed scan of all rows a leader sweep costs, about.
LEADERS_CHEAPER = 6.0
# Births and deaths, and carvings and returns, that are proposed beside a leader sweep. Of rows in memory it is one
# birth or death for ROWS_PER_BIRTH rows, if that is more: 2,000 among 100,000 rows take a few milliseconds, and
# the number of clusters has up to fifty times as many effective draws a second.
N_BIRTHS, N_CARVINGS, ROWS_PER_BIRTH = 200, 50, 50
# A scan beside leader sweeps visits n / ROWS_PER_SCANNED rows, at least LEAST_SCANNED, in contiguous runs.
ROWS_PER_SCANNED, LEAST_SCANNED = 256, 1_000
# With this number of clusters or more there are super-clusters, of at most MOST_CLUSTERS each.
MANY_CLUSTERS, MOST_CLUSTERS = 36, 16
# The rows of the part that is searched first, and the number of rows from which on there is one.
ROWS_OF_PART, ROWS_FOR_PART = 20_000, 50_000
# Draws that search among all rows once a part of them has been searched, and what each does.
SEARCH_DRAWS_AFTER_PART = 2
EFFORT_AFTER_PART = Effort(1, 1, 3)
# Leader sweeps of a searching draw for each that an exact draw has: clusters settle in fewer collapsed scans than
# leader sweeps.
SEARCH_LEADERS = 3
# A learnt scale is drawn in a share ROWS_FOR_EACH_SCALE / n of the draws of n rows, since tables by sizes of
# clusters have to be made anew, and (COLUMNS_FOR_EACH_SCALE / d)^2 of d columns, whose third power it takes; but
# at least in LEAST_SCALES of them.
ROWS_FOR_EACH_SCALE, COLUMNS_FOR_EACH_SCALE, LEAST_SCALES = 100_000, 50, 0.1
# With this number of rows or more, a search makes one trial in a draw.
ROWS_FOR_ONE_TRIAL = 20_000

# --- Words: benchmarks/words.py

# How many times less than a scan of rows a scan that is made for words costs, about.
WORDS_CHEAPER = 10.0
# Scans of words in a draw: until so many tokens have been scanned, at most MOST_SCANS_OF_WORDS. Draws one scan
# apart are hardly different, and each stored one takes four bytes for each token (benchmarks/hard.py).
TOKENS_SCANNED, MOST_SCANS_OF_WORDS = 500_000, 5
# The share of the tuning draws that anneal; the share after which chains tell each other of their topics, and the
# share whose mean log joint density is a chain's level (benchmarks/hard.py). A chain begins anew at another one's
# topics where its level is lower by LOWER_BY standard deviations of its own log joint density: at that, R-hat is
# 1.06.
ANNEALING_SHARE, SHARE_BEFORE_TELLING, SHARE_OF_LEVEL, LOWER_BY = 0.4, 0.6, 0.1, 0.5
# With fewer words, to write labels back and forth takes longer than scans of rows of any kind.
FEWEST_WORDS = 2_000
