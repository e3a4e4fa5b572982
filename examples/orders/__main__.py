"""Read a table's changes from Postgres's log and orders from Kafka, serve features, and write a Delta table.

    python -m examples.orders [--customers 2000] [--orders 20000]

It starts Postgres, Kafka and an object store for the shop, and a stack of Caraway beside them, all in a temporary
"""

import argparse
import importlib
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
from deltalake import DeltaTable

from caraway.apps.cli.output import out
from caraway.apps.demo.embedded import data_folder, running_stack
from caraway.client import Client
from examples.orders.services import BUCKET, running_systems
from examples.orders.shop import Shop

WAIT_SECONDS = 180.0
ASKED = 500
FEATURES = ("country", "tier", "orders", "spent", "spent_1d", "average")


def main() -> int:
    """Run the example; return 1 if a value isn't as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--customers", type=int, default=2_000)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--url", default="", help="a Caraway server that runs already, such as that of compose.yaml")
    options = parser.parse_args()
    if options.url:
        return _run(Client(options.url), _shop_of_environment(), options.customers, options.orders)
    with data_folder(None) as folder:
        out.print("Starting the shop's Postgres, Kafka and object store")
        with running_systems(folder / "shop") as systems:
            os.environ.update(systems.environment())
            with running_stack(folder / "caraway") as url:
                shop = Shop(postgres=systems.postgres, kafka=systems.kafka, random=random.Random(7))
                return _run(Client(url), shop, options.customers, options.orders)


def _shop_of_environment() -> Shop:
    get = os.environ.__getitem__
    address = f"{get('SHOP_POSTGRES_HOST')}:{get('SHOP_POSTGRES_PORT')}/{get('SHOP_POSTGRES_DATABASE')}"
    login = f"{get('SHOP_POSTGRES_USER')}:{get('SHOP_POSTGRES_PASSWORD')}"
    return Shop(postgres=f"postgresql://{login}@{address}", kafka=get("SHOP_KAFKA"), random=random.Random(7))


def _run(client: Client, shop: Shop, customers: int, orders: int) -> int:
    # The definitions read their addresses from the environment, which is complete only now.
    definitions = importlib.import_module("examples.orders.definitions")
    shop.open(customers)
    out.print(f"The shop has {customers:,} customers in a table of Postgres.\n")
    client.commit("The shop", definitions.DATASETS, definitions.FEATURESETS)
    seconds = _until(lambda: _differing(client, definitions, shop, shop.customers) == [])
    out.print(f"\nAll customers are served {seconds:.1f} s after the commit.")
    changed, gone = shop.move_house(0.2)
    seconds = _until(lambda: _differing(client, definitions, shop, range(customers)) == [])
    out.print(f"{changed} of them changed and {gone} were deleted; {seconds:.1f} s later the features are so, too.")
    shop.sell(orders)
    seconds = _until(lambda: _differing(client, definitions, shop, range(customers)) == [])
    out.print(f"They made {orders:,} orders; {seconds:.1f} s after the last one all of them are in the features.")
    expected = sorted(shop.orders)
    seconds = _until(lambda: len(_written()) >= len(expected))
    is_right = _written() == expected
    out.print(f"{seconds:.1f} s later the Delta table has {len(expected):,} orders with the countries at their times.")
    out.print("Every value is as expected." if is_right else "The Delta table differs from what was expected.")
    return 0 if is_right else 1


def _until(is_so: Callable[[], bool]) -> float:
    """Wait until something is so, and return the seconds that it took."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() > begun + WAIT_SECONDS:
            raise TimeoutError("not all is served; `caraway status` tells more")
        time.sleep(0.1)
    return time.monotonic() - begun


def _differing(client: Client, definitions: Any, shop: Shop, customers: Any) -> list[int]:
    """Return customers whose features aren't as expected, among some that are drawn."""
    drawn = shop.random.sample(list(customers), min(ASKED, len(customers)))
    asked = pd.DataFrame({"Customer.customer": drawn})
    inputs, outputs = [definitions.Customer.customer], [f"Customer.{name}" for name in FEATURES]
    answer = client.query(inputs=inputs, outputs=outputs, input_dataframe=asked)
    found = answer.rename(columns=lambda name: name.partition(".")[2]).to_dict("records")
    return [
        n for n, row in zip(drawn, found, strict=True) if any(row[name] != shop.features(n)[name] for name in FEATURES)
    ]


def _written() -> list[tuple[int, int, float, str]]:
    """Return the rows of the Delta table, as anybody can read it."""
    options = {"aws_endpoint": os.environ["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}
    address = f"s3://{BUCKET}/orders_main_v1"
    if not DeltaTable.is_deltatable(address, options):
        return []
    table = DeltaTable(address, storage_options=options).to_pyarrow_table()
    columns = [table[name].to_pylist() for name in ("order", "customer", "amount", "country")]
    return sorted(zip(*columns, strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
