"""Commands about entities: queues, topics, subscriptions and their rules."""
