"""Customer support: should this customer talk to a person right away?

Messages of chat and mail come in different shapes; those within half an hour of each other are one conversation.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, eval, ref, source
from caraway.datasets import Average, Count, Dataset, Max, Sum, dataset, field, pipeline
from caraway.dtypes import Hopping, Session, Window
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_values_to_be_in_set, expectations, inputs

__owner__ = "support@shop.example"

desk = Webhook(name="help_desk")


def count_words(mails):
    """Count what lies between blanks."""
    return mails["body"].str.split().str.len()


@source(
    desk.endpoint("chat"),
    disorder="1h",
    cdc="append",
    preproc={
        "customer": ref("user_id"),
        "channel": "chat",
        "words": eval(col("text").str.split(" ").list.len(), schema={"text": str}),
    },
    where=eval(~col("from_bot"), schema={"from_bot": bool}),
)
@source(
    desk.endpoint("mail"),
    disorder="1d",
    cdc="append",
    preproc={"channel": "mail", "words": eval(count_words, schema={"body": str})},
    where=lambda mails: mails["spam_score"] < 0.5,
)
@dataset
class Messages:
    customer: int
    channel: str
    words: int
    sent_at: datetime

    @expectations
    def channels_are_known(cls):
        return [expect_column_values_to_be_in_set(str(cls.channel), ["chat", "mail"])]


@dataset(index=True)
class Conversations:
    customer: int = field(key=True)
    window: Window = field(key=True)
    messages: int
    words: int
    sent_at: datetime

    @pipeline
    @inputs(Messages)
    def sessions(cls, messages: Dataset):
        return messages.groupby("customer", window=Session("30m")).aggregate(messages=Count(), words=Sum(of="words"))


@dataset(index=True)
class CustomerConversations:
    customer: int = field(key=True)
    conversations: int
    longest: int
    mean_words: Optional[float]
    sent_at: datetime

    @pipeline
    @inputs(Conversations)
    def by_customer(cls, conversations: Dataset):
        hourly = Hopping("forever", "1h")
        return conversations.groupby("customer").aggregate(
            conversations=Count(window=hourly),
            longest=Max(of="messages", window=hourly, default=0),
            mean_words=Average(of="words", window=hourly, default=None),
        )


@featureset
class Customer:
    customer: int
    conversations: int = F(CustomerConversations.conversations, default=0)
    longest: int = F(CustomerConversations.longest, default=0)
    mean_words: Optional[float] = F(CustomerConversations.mean_words)
    talkative: bool = F((col("longest") >= 3) | (col("mean_words").fillnull(0.0) > 100.0))


LOGS = [
    ("help_desk", "chat", [
        {"user_id": 1, "text": "hello there", "from_bot": False, "sent_at": "2026-01-05T10:00:00Z"},
        {"user_id": 1, "text": "how can I help", "from_bot": True, "sent_at": "2026-01-05T10:45:00Z"},
        {"user_id": 1, "text": "it is broken", "from_bot": False, "sent_at": "2026-01-05T10:40:00Z"},
        {"user_id": 2, "text": "thanks", "from_bot": False, "sent_at": "2026-01-05T15:00:00Z"},
        {"user_id": 2, "text": "bye", "from_bot": False, "sent_at": "2026-01-05T19:30:00Z"},
    ]),
    ("help_desk", "mail", [
        {"customer": 1, "body": "as I said  in the chat", "spam_score": 0.1, "sent_at": "2026-01-05T10:10:00Z"},
        {"customer": 1, "body": "buy", "spam_score": 0.9, "sent_at": "2026-01-05T12:00:00Z"},
        {"customer": 1, "body": "well", "spam_score": 0.2, "sent_at": "2026-01-05T14:10:00Z"},
    ]),
]  # fmt: skip
OUTPUTS = ["Customer.conversations", "Customer.longest", "Customer.mean_words", "Customer.talkative"]
ASKS = [
    {  # 10:00, 10:10 and 10:40 are one conversation of 2 + 6 + 3 words, as half an hour apart still is together.
        "at": "2026-01-05T13:00:00Z",
        "inputs": {"Customer.customer": [1, 2]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[1, 0], [3, 0], [11.0, None], [True, False]])),
    },
    {  # The last one ends after 19:00, so what is served is as of then.
        "at": "2026-01-06T00:00:00Z",
        "inputs": {"Customer.customer": [1, 2]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[2, 1], [3, 1], [6.0, 1.0], [True, False]])),
    },
]
