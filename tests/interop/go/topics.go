package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (s *stage) subscription(client *azservicebus.Client, topic, name string) *azservicebus.Receiver {
	return must(client.NewReceiverForSubscription(topic, name, nil))
}

// filtered is a subscription with one rule in place of the one that takes everything.
func filtered(s *stage, topic, name string, filter admin.RuleFilter, action admin.RuleAction) {
	must(s.administration().CreateSubscription(s, topic, name, &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{
			DefaultRule: &admin.RuleProperties{Name: "only", Filter: filter, Action: action},
		},
	}))
}

func init() {
	scenario("topics and rules", "every subscription gets a copy", func(s *stage) {
		topic, client := s.topic(admin.TopicProperties{}, "one", "two"), s.client()
		s.send(client, topic, "news")
		for _, name := range []string{"one", "two"} {
			receiver := s.subscription(client, topic, name)
			got := s.take(receiver, 1)
			equal([]string{"news"}, bodies(got))
			s.complete(receiver, got...)
		}
	})

	scenario("topics and rules", "SQL rules choose and change messages", func(s *stage) {
		topic, client := s.topic(admin.TopicProperties{}), s.client()
		filtered(s, topic, "large", &admin.SQLFilter{
			Expression: "size > @limit AND sys.Label LIKE 'order%'",
			Parameters: map[string]any{"@limit": 10},
		}, &admin.SQLAction{Expression: "SET urgent = 'yes'; REMOVE size"})
		filtered(s, topic, "none", &admin.FalseFilter{}, nil)
		filtered(s, topic, "all", &admin.TrueFilter{}, nil)
		sender := s.sender(client, topic)
		for _, size := range []int64{5, 50} {
			check(sender.SendMessage(s, &azservicebus.Message{
				Subject: ptr("order 1"), ApplicationProperties: map[string]any{"size": size},
			}, nil))
		}
		equal(2, len(s.take(s.subscription(client, topic, "all"), 2)))
		large := s.subscription(client, topic, "large")
		equal(map[string]any{"urgent": "yes", "RuleName": "only"}, s.take(large, 1)[0].ApplicationProperties)
		s.takeNone(large)
		s.takeNone(s.subscription(client, topic, "none"))
	})

	scenario("topics and rules", "correlation rules match properties", func(s *stage) {
		topic, client := s.topic(admin.TopicProperties{}), s.client()
		filtered(s, topic, "red", &admin.CorrelationFilter{
			Subject: ptr("order"), ApplicationProperties: map[string]any{"colour": "red", "count": int64(3), "big": true, "ratio": 1.5},
		}, nil)
		sender := s.sender(client, topic)
		for _, colour := range []string{"blue", "red"} {
			check(sender.SendMessage(s, &azservicebus.Message{
				Body: []byte(colour), Subject: ptr("order"),
				ApplicationProperties: map[string]any{"colour": colour, "count": int64(3), "big": true, "ratio": 1.5},
			}, nil))
		}
		receiver := s.subscription(client, topic, "red")
		equal([]string{"red"}, bodies(s.take(receiver, 1)))
		s.takeNone(receiver)
	})

	scenario("topics and rules", "the dead letters of a subscription are received", func(s *stage) {
		topic, client := s.topic(admin.TopicProperties{}, "sub"), s.client()
		s.send(client, topic, "bad")
		receiver := s.subscription(client, topic, "sub")
		check(receiver.DeadLetterMessage(s, s.take(receiver, 1)[0], nil))
		dead := must(client.NewReceiverForSubscription(topic, "sub", &azservicebus.ReceiverOptions{
			SubQueue: azservicebus.SubQueueDeadLetter,
		}))
		equal([]string{"bad"}, bodies(s.take(dead, 1)))
	})

	scenario("topics and rules", "a subscription forwards to a queue", func(s *stage) {
		queue, topic, client := s.queue(admin.QueueProperties{}), s.topic(admin.TopicProperties{}), s.client()
		must(s.administration().CreateSubscription(s, topic, "sub", &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{ForwardTo: &queue},
		}))
		s.send(client, topic, "onwards")
		equal([]string{"onwards"}, bodies(s.take(s.receiver(client, queue), 1)))
	})
}
