"""The shop whose data the example reads: a table in Postgres, a topic in Kafka, and what is expected of them."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import orjson
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

COUNTRIES = ("AT", "CH", "DE", "FR", "IT", "NO")
TIERS = ("bronze", "silver", "gold")
TOPIC, PARTITIONS = "orders", 4
TABLE = """
CREATE TABLE customers (
    customer bigint PRIMARY KEY,
    country text NOT NULL,
    tier text NOT NULL,
    updated_at timestamptz NOT NULL
)
"""


@dataclass(kw_only=True)
class Shop:
    """The shop, which keeps what its table and its topic have, so that features can be compared with it.

    Attributes:
        postgres: The URL of its database.
        kafka: The address of its broker, "host:port".
        random: The source of all that it invents.
        customers: Country and tier of each customer that is in the table.
        orders: The customer, amount and country of each order.
    """

    postgres: str
    kafka: str
    random: random.Random
    customers: dict[int, tuple[str, str]] = field(default_factory=dict)
    orders: list[tuple[int, int, float, str]] = field(default_factory=list)

    def open(self, customers: int) -> None:
        """Make the table and the topic, and fill the table."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        opened = datetime.now(UTC) - timedelta(hours=1)
        self.customers = {n: self._customer() for n in range(customers)}
        with psycopg.connect(self.postgres) as connection:
            connection.execute(TABLE)
            with connection.cursor().copy("COPY customers FROM STDIN") as rows:
                for n, (country, tier) in self.customers.items():
                    rows.write_row((n, country, tier, opened))

    def move_house(self, share: float) -> tuple[int, int]:
        """Change some customers and delete a few, each in a transaction of its own; return how many of each."""
        chosen = self.random.sample(sorted(self.customers), int(share * len(self.customers)))
        gone = chosen[: len(chosen) // 10]
        with psycopg.connect(self.postgres, autocommit=True) as connection:
            for n in gone:
                connection.execute("DELETE FROM customers WHERE customer = %s", (n,))
                del self.customers[n]
            for n in chosen[len(gone) :]:
                self.customers[n] = country, tier = self._customer()
                connection.execute(
                    "UPDATE customers SET country = %s, tier = %s, updated_at = now() WHERE customer = %s",
                    (country, tier, n),
                )
        return len(chosen) - len(gone), len(gone)

    def sell(self, count: int) -> None:
        """Write orders to the topic, all of customers that the table has now."""
        producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 5})
        for row in self._sold(count):
            producer.produce(TOPIC, orjson.dumps(row), str(row["customer"]))
            producer.poll(0)
        if producer.flush(60):
            raise TimeoutError("the broker didn't take all orders")

    def features(self, customer: int) -> Mapping[str, object]:
        """Return the features that a customer must have."""
        country, tier = self.customers.get(customer, ("unknown", "none"))
        amounts = [amount for _, of, amount, _ in self.orders if of == customer]
        return {
            "country": country,
            "tier": tier,
            "orders": len(amounts),
            "spent": sum(amounts),
            "spent_1d": sum(amounts),
            "average": sum(amounts) / len(amounts) if amounts else 0.0,
        }

    def _sold(self, count: int) -> Iterator[Mapping[str, object]]:
        buyers = sorted(self.customers)
        for _ in range(count):
            order, customer = len(self.orders), self.random.choice(buyers)
            # Amounts in quarters add up exactly, in whichever order.
            amount = self.random.randrange(1, 2_000) / 4
            self.orders.append((order, customer, amount, self.customers[customer][0]))
            yield {"order": order, "customer": customer, "amount": amount, "at": datetime.now(UTC).isoformat()}

    def _customer(self) -> tuple[str, str]:
        return self.random.choice(COUNTRIES), self.random.choice(TIERS)
