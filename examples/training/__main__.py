"""Train a model of late departures with a training set, then serve it for a day.

    python -m examples.training [--months 3] [--ahead 60] [--chart FILE]

It needs a stack that runs, such as that of `caraway up`, and sends it the flights of 2013, unless the stack has them.
The README beside this file explains each step.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import caraway
from caraway.client import Client
from caraway.errors import CarawayError
from examples.flights import data
from examples.flights.definitions import Flight, Origin
from examples.training import flights

try:
    from examples.training import model
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "sklearn":
        raise
    raise SystemExit(
        "The example trains with scikit-learn, which comes with: pip install 'caraway[training]' "
        "(in a clone of the repository: ./run setup)"
    ) from None

ZONE = "America/New_York"
# The first month has no past to train on.
FIRST_EVALUATED = pd.Timestamp("2013-02-01", tz=ZONE)
EVALUATED_DAYS = 7
# On the last day the model is asked every hour, from before the first flight until after the last one.
LIVE_HOURS = range(3, 24)
HALF_HOUR = pd.Timedelta("30min")
CHARTED = pd.Timedelta("3D")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of the example: the events by endpoint, and how long before a flight is due it is predicted."""

    client: Client
    tables: dict[str, pd.DataFrame]
    ahead: pd.Timedelta

    @property
    def moments(self) -> list[pd.Timestamp]:
        """The times of the last day at which the model is asked."""
        # Flights that are due at midnight still belong to the day before.
        last = (self.tables["schedule"]["due"].max() - pd.Timedelta("1min")).tz_convert(ZONE).normalize()
        return [last + pd.Timedelta(hours=hour) for hour in LIVE_HOURS]


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=3, choices=range(2, 13), metavar="2..12", help="months of 2013")
    parser.add_argument("--ahead", type=int, default=60, help="minutes before a flight is due at which to predict")
    parser.add_argument("--chart", type=Path, help="a file for a chart of an airport's delays")
    options = parser.parse_args()
    tables = data.load(months=options.months)
    with Client() as client:
        run = Run(client=client, tables=tables, ahead=pd.Timedelta(minutes=options.ahead))
        flights.commit(client)
        morning = run.moments[0]
        history, day = flights.between(tables, None, morning), flights.between(tables, morning, None)
        if not flights.are_sent(client, history):
            flights.send(client, history)
        print(f"\nThe stack has the events up to {morning:%Y-%m-%d %H:%M}, New York's time.")
        if options.chart:
            chart(run, options.chart)
        trained, count = train(run, history)
        predicted = serve(run, trained, sent=flights.are_sent(client, day))
        show([check(run, predicted, count)])


def train(run: Run, history: dict[str, pd.DataFrame]) -> tuple["model.Model", int]:
    """Train a model on all flights that have left, print how good it would have been; return it and their number."""
    rows = flights.labelled(history, run.ahead)
    found = caraway.training_set(flights.INPUTS, flights.OUTPUTS, flights.AT, rows, client=run.client)
    minutes = run.ahead // pd.Timedelta("1min")
    print(f"\nTraining set: {len(found):,} flights, each as of {minutes} minutes before it was due.")
    matrix = model.matrix(found.to_pandas(), rows)
    show(model.periods(matrix, rows, FIRST_EVALUATED, run.moments[0], EVALUATED_DAYS))
    return model.fitted(matrix, rows["late"]), len(rows)


def show(periods: Iterable["model.Period"]) -> None:
    """Print a table of periods."""
    names = "".join(f"  {name:>12}" for name in ["model", *model.BASELINES])
    print(f"\n                                            AUC of\nfrom        trained on  flights    late{names}")
    for period in periods:
        auc = "".join(f"  {value:>12.3f}" for value in period.auc.values())
        print(f"{period.begin:%Y-%m-%d}  {period.trained:>10,}  {period.flights:>7,}  {period.late:>6.1%}{auc}")


def chart(run: Run, file: Path) -> None:
    """Draw an airport's delays of the last days into a file."""
    drawn = [Origin.mean_delay_1h, Origin.mean_delay_1d]
    end = run.moments[0]
    axes = caraway.plot_features(drawn, {Flight.origin: "EWR"}, end - CHARTED, end, client=run.client)
    axes.set_ylabel("minutes")
    axes.figure.savefig(file)  # type: ignore[union-attr]  # a figure, since the axes aren't part of another chart
    print(f"\n{file} has the delays of Newark.")


def serve(run: Run, trained: "model.Model", *, sent: bool) -> pd.DataFrame:
    """Replay the last day hour by hour; return the flights with the features that were served and the predictions."""
    print("\nThe last day, hour by hour: flights to come, and the one with the greatest chance to leave late")
    schedule = run.tables["schedule"]
    asked_at = schedule["due"] - run.ahead
    before, predicted = run.moments[0], []
    for moment in run.moments:
        if not sent:
            flights.send(run.client, flights.between(run.tables, before, moment))
        before = moment
        coming = schedule[(asked_at > moment - HALF_HOUR) & (asked_at <= moment + HALF_HOUR)].reset_index(drop=True)
        if coming.empty:
            continue
        rows = flights.rows_of(coming, moment)
        # These flights are of 2013; without `timestamps` a query is as of now.
        served = run.client.query(flights.INPUTS, flights.OUTPUTS, rows, timestamps=rows[flights.AT])
        chances = model.chance(trained, model.matrix(served, rows))
        first = chances.argmax()
        print(f"{moment:%H:%M}  {len(coming):>3}  {coming['flight_id'][first]:<22} {chances[first]:>4.0%}")
        predicted.append(pd.concat([coming, rows, served], axis=1).assign(model=chances))
    if not sent:
        flights.send(run.client, flights.between(run.tables, before, None))
    return pd.concat(predicted, ignore_index=True)


def check(run: Run, predicted: pd.DataFrame, trained: int) -> "model.Period":
    """Compare what was served with a training set made now; return how good the predictions were.

    Raises:
        RuntimeError: A feature that was served isn't the one that a training set has for the same time.
    """
    given = [feature.fqn() for feature in flights.INPUTS]
    features = [name for name in predicted.columns if "." in name and name not in given]
    rows = predicted[[*given, flights.AT]]
    later = caraway.training_set(flights.INPUTS, flights.OUTPUTS, flights.AT, rows, client=run.client).to_pandas()
    if names := flights.different(predicted[features], later):
        raise RuntimeError(f"features that were served differ from those of a training set: {', '.join(names)}")
    print(f"\nA training set of the day's {len(predicted):,} flights, made after it, has what was served during it:")
    print(f"{predicted[features].size:,} values are equal to the bit. The predictions of the day:")
    left = predicted.merge(run.tables["departures"][["flight_id", "delay"]], on="flight_id")
    return model.scored(run.moments[0], trained, left, left["delay"] > flights.LATE_MINUTES)


if __name__ == "__main__":
    try:
        main()
    except (CarawayError, FileNotFoundError, RuntimeError) as error:
        raise SystemExit(str(error)) from error
