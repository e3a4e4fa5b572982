"""The model, the baselines that it has to beat, and their evaluation: each period by what was known before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder

Model: TypeAlias = Pipeline

CATEGORIES = ["Flight.carrier", "Flight.origin", "Flight.dest"]
NUMBERS = [
    "Origin.mean_delay_1h",
    "Origin.mean_delay_6h",
    "Origin.mean_delay_1d",
    "Origin.max_delay_1h",
    "Origin.max_delay_6h",
    "Origin.stddev_delay_1h",
    "Origin.stddev_delay_6h",
    "Origin.departures_1h",
    "Risk.carrier_late_share_7d",
    "Destination.altitude",
    "Destination.aircraft",
    "Aircraft.seats",
    "Aircraft.age",
    "Aircraft.last_delay",
]
# One feature by itself is a prediction, too; a model is worth its trouble if it beats these.
BASELINES = {"airport, 1 h": "Origin.mean_delay_1h", "carrier, 7 d": "Risk.carrier_late_share_7d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A time, such as a week, whose flights the model hadn't seen.

    Attributes:
        begin: When it begins.
        trained: The number of flights that the model was trained on: those that had left before.
        flights: The number of flights whose predictions are of this period.
        late: The share of them that left late.
        auc: The area under the ROC curve of the model and of each baseline: 0.5 is chance, 1 is perfect.
    """

    begin: pd.Timestamp
    trained: int
    flights: int
    late: float
    auc: dict[str, float]


def matrix(features: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return what the model takes, from features of a training set or of a query, and the rows that were asked for."""
    numbers = {name: features[name].to_numpy(np.float64, na_value=np.nan) for name in NUMBERS}
    return pd.DataFrame({**{name: rows[name] for name in CATEGORIES}, "hour": rows["hour"]}).assign(**numbers)


def fitted(taken: pd.DataFrame, late: "pd.Series[bool]") -> Model:
    """Return a model of the probability that a flight leaves late; nulls are left to the trees."""
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    columns = make_column_transformer((encoder, CATEGORIES), remainder="passthrough", verbose_feature_names_out=False)
    # A fixed number of trees: the number that early stopping finds is measured on flights drawn at random.
    trees = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=150, early_stopping=False, categorical_features=CATEGORIES, random_state=0
    )
    return make_pipeline(columns.set_output(transform="pandas"), trees).fit(taken, late)


def chance(model: Model, taken: pd.DataFrame) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Return the probability of each flight to leave late."""
    probabilities: np.ndarray[Any, np.dtype[np.float64]] = model.predict_proba(taken)[:, 1]
    return probabilities


def periods(
    taken: pd.DataFrame, known: pd.DataFrame, begin: pd.Timestamp, end: pd.Timestamp, days: int
) -> Iterator[Period]:
    """Evaluate period by period: each one's model sees only flights that had left when the period began.

    Args:
        taken: The matrix, a row for each flight.
        known: The columns `at`, `departed` and `late` of the same flights.
        begin: The begin of the first period; its zone is the one whose days are counted.
        end: No period ends after it.
        days: The length of a period.
    """
    begins = pd.date_range(begin, end.tz_convert(begin.tz), freq=f"{days}D")
    for first, following in pairwise(begins):
        past = known["departed"] < first
        now = (known["at"] >= first) & (known["at"] < following)
        model = fitted(taken[past], known["late"][past])
        yield scored(first, int(past.sum()), taken[now].assign(model=chance(model, taken[now])), known["late"][now])


def scored(begin: pd.Timestamp, trained: int, predicted: pd.DataFrame, late: "pd.Series[bool]") -> Period:
    """Return how good predictions were: the matrix with a column `model`, and how the same flights left."""
    scores = {"model": predicted["model"]} | {name: predicted[feature] for name, feature in BASELINES.items()}
    return Period(
        begin=begin,
        trained=trained,
        flights=len(late),
        late=float(late.mean()),
        auc={name: float(roc_auc_score(late, score)) for name, score in scores.items()},
    )
