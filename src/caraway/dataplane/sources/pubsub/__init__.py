"""The reader of topics of Google PubSub."""
