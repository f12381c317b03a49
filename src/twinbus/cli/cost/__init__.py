"""Commands about money: estimates and prices, and questions to operations logs."""
