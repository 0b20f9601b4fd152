"""Data sets for examples and tests.

``old_faithful.csv``
    272 eruptions of Old Faithful: duration and waiting time to the next, in minutes. From R's
    ``datasets::faithful`` (Azzalini and Bowman 1990, Applied Statistics 39, 357-365).
``galaxies.csv``
    Velocities of 82 galaxies in the Corona Borealis region, in 1000 km/s. From R's ``MASS::galaxies`` / 1000
    (Roeder 1990, JASA 85, 617-624), as distributed there: its 26.69 is 26.96 in the paper.
``lidar.csv``
    221 pairs: the distance that light travelled before it was reflected, and the logarithm of the ratio of light
    received from two laser sources (Sigrist 1994, Air Monitoring by Spectroscopic Techniques, Wiley; Ruppert, Wand
    and Carroll 2003, Semiparametric Regression), as distributed with R's SemiPar and HRW.
``beta_blockers.csv``
    Deaths and patients in the control groups and the treated groups of 22 trials of beta blockers after heart
    attacks (Yusuf, Peto, Lewis, Collins and Sleight 1985, Progress in Cardiovascular Diseases 27, 335-371; Gelman
    et al. 2013, Bayesian Data Analysis, table 5.4).
``digits.csv``
    1,797 handwritten digits, binarised: the digit, and 8 x 8 pixels as 64 bits in hexadecimal, row by row, 1 where
    the pixel is at least 8 of 16. From the test set of the UCI Machine Learning Repository's *Optical Recognition
    of Handwritten Digits* (Alpaydin and Kaynak 1998; CC BY 4.0), as distributed with scikit-learn 1.9.1.
``rat_tumors.csv``
    Rats with a tumour, and all rats, in 71 control groups (Tarone 1982, Biometrics 38, 215-220; Gelman et al.
    2013, Bayesian Data Analysis, table 5.1).
``penguins.csv``
    344 penguins of the Palmer Archipelago: species, island, four measurements in mm and g, and sex, with missing
    entries. From the R package palmerpenguins (CC0), by way of seaborn's data; collected by K. Gorman and the
    Palmer Station LTER (Gorman, Williams and Fraser 2014, PLoS ONE 9, e90081).
``turtles.csv``
    Directions in degrees that 76 turtles took after laying eggs, clockwise from north (Stephens 1969, Techniques
    for data on the circle, technical report 142, Stanford University; Fisher 1993, Statistical Analysis of
    Circular Data, appendix B.3).
``heart_transplants.csv``
    Days that 69 patients survived after a heart transplant, whether they had died by the end of the study, and
    their age (Miller 1976, Biometrika 63, 449-464), as distributed with statsmodels 0.14.4.
``rosiglitazone.csv``
    Myocardial infarctions and patients in the arms of 49 trials of rosiglitazone: the number of the trial,
    patients and infarctions with the drug, and in the control group. The last trial is larger and of another kind
    than the others (Nissen and Wolski 2007, New England Journal of Medicine 356, 2457-2471).
``sunspots.csv``
    The mean number of sunspots of each year from 1700 to 2008 (SILSO, Royal Observatory of Belgium; public
    domain), as distributed with statsmodels 0.14.4.
``reuters.npz``
    Counts of 4,258 words in 395 Reuters news stories of 1996, as distributed with the Python package lda
    3.0.2 (Mozilla Public License 2.0). The stories themselves are not included.
"""

from importlib.resources import files

import numpy as np
import pandas as pd


def load_old_faithful() -> pd.DataFrame:
    """Return the Old Faithful eruptions: 272 rows, columns ``duration`` and ``waiting`` in minutes.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_old_faithful().head(2)
       duration  waiting
    0       3.6       79
    1       1.8       54
    """
    with (files(__package__) / "old_faithful.csv").open() as source:
        return pd.read_csv(source, header=None, names=["duration", "waiting"])


def load_beta_blockers() -> pd.DataFrame:
    """Return the trials of beta blockers.

    Returns
    -------
    frame of 22 rows
        ``control_deaths``, ``control``, ``treated_deaths`` and ``treated``: integers.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_beta_blockers().head(2)
       control_deaths  control  treated_deaths  treated
    0               3       39               3       38
    1              14      116               7      114
    """
    names = ["control_deaths", "control", "treated_deaths", "treated"]
    with (files(__package__) / "beta_blockers.csv").open() as source:
        return pd.read_csv(source, header=None, names=names)


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return binarised handwritten digits.

    Returns
    -------
    pixels : (1797, 64) int64 array
        The 8 x 8 pixels of each image, row by row: 0 or 1.
    digits : (1797,) int64 array
        The digit that each image shows.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> pixels, digits = dp.datasets.load_digits()
    >>> pixels.shape, digits[:3].tolist()
    ((1797, 64), [0, 1, 2])
    """
    with (files(__package__) / "digits.csv").open() as source:
        lines = [line.strip().split(",") for line in source]
    pixels = np.array([[int(bit) for bit in f"{int(code, 16):064b}"] for _, code in lines], dtype=np.int64)
    return pixels, np.array([int(digit) for digit, _ in lines])


def load_galaxies() -> pd.Series:
    """Return the velocities of 82 galaxies, named ``velocity``, in 1000 km/s.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_galaxies().agg(["min", "median", "max"]).tolist()
    [9.172, 20.8335, 34.279]
    """
    with (files(__package__) / "galaxies.csv").open() as source:
        return pd.read_csv(source, header=None, names=["velocity"])["velocity"]


def load_lidar() -> pd.DataFrame:
    """Return the LIDAR measurements: 221 rows, columns ``range`` and ``logratio``.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_lidar().head(2)
       range  logratio
    0    390 -0.050356
    1    391 -0.060097
    """
    with (files(__package__) / "lidar.csv").open() as source:
        return pd.read_csv(source)


def load_penguins() -> pd.DataFrame:
    """Return measurements of 344 penguins, with NaN where something was not recorded.

    The columns are ``species``, ``island``, ``bill_length``, ``bill_depth`` and ``flipper_length`` in mm,
    ``body_mass`` in g, and ``sex``. The measurements of 2 rows and the sex of 11 are missing.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_penguins()["species"].value_counts().to_dict()
    {'Adelie': 152, 'Gentoo': 124, 'Chinstrap': 68}
    """
    with (files(__package__) / "penguins.csv").open() as source:
        return pd.read_csv(source)


def load_rat_tumors() -> pd.DataFrame:
    """Return 71 control groups of laboratory rats.

    The column ``tumors`` is the number of rats with a tumour, and ``rats`` is the number of all rats in the group.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_rat_tumors().tail(1).to_dict("records")
    [{'tumors': 4, 'rats': 14}]
    """
    with (files(__package__) / "rat_tumors.csv").open() as source:
        return pd.read_csv(source)


def load_reuters() -> pd.DataFrame:
    """Return counts of words in Reuters news stories: 395 rows, one for each story, and 4,258 columns.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> counts = dp.datasets.load_reuters()
    >>> counts.shape, int(counts.to_numpy().sum())
    ((395, 4258), 84010)
    >>> counts.sum().nlargest(3).index.tolist()
    ['church', 'pope', 'years']
    """
    from scipy.sparse import csr_array

    with np.load(str(files(__package__) / "reuters.npz")) as stored:
        words = stored["words"].tobytes().decode().split("\n")
        arrays = stored["data"].astype(np.int64), stored["indices"].astype(np.int64), stored["indptr"]
        counts = csr_array(arrays, shape=(len(stored["indptr"]) - 1, len(words)))
    return pd.DataFrame(counts.toarray(), columns=words)


def load_turtles() -> pd.Series:
    """Return the directions that 76 turtles took after laying eggs, named ``direction``, in degrees from north.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_turtles().agg(["size", "median"]).tolist()
    [76.0, 78.0]
    """
    with (files(__package__) / "turtles.csv").open() as source:
        return pd.read_csv(source, header=None, names=["direction"])["direction"]


def load_heart_transplants() -> pd.DataFrame:
    """Return the survival of 69 patients after a heart transplant.

    The columns are ``days``, ``died`` (0 if the patient was alive at the end of the study, so that survival is
    censored), and ``age`` in years.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> patients = dp.datasets.load_heart_transplants()
    >>> len(patients), int(patients["died"].sum())
    (69, 45)
    """
    with (files(__package__) / "heart_transplants.csv").open() as source:
        return pd.read_csv(source)


def load_rosiglitazone() -> pd.DataFrame:
    """Return the trials of rosiglitazone, the last of which is larger and of another kind.

    Returns
    -------
    frame of 49 rows
        ``treated``, ``treated_infarctions``, ``control`` and ``control_infarctions``: integers. The index is the
        number of the trial.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_rosiglitazone().tail(1).to_dict("records")
    [{'treated': 2220, 'treated_infarctions': 43, 'control': 2227, 'control_infarctions': 37}]
    """
    names = ["trial", "treated", "treated_infarctions", "control", "control_infarctions"]
    with (files(__package__) / "rosiglitazone.csv").open() as source:
        return pd.read_csv(source, header=None, names=names, index_col="trial")


def load_sunspots() -> pd.Series:
    """Return the mean number of sunspots of 309 years, named ``sunspots``, with the year for index.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.datasets.load_sunspots().loc[[1700, 2008]].tolist()
    [5.0, 2.9]
    """
    with (files(__package__) / "sunspots.csv").open() as source:
        return pd.read_csv(source, index_col="year")["sunspots"]
