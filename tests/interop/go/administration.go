package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func status(err error) int {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		fail("not an answer of the namespace: %v", err)
	}
	return answer.StatusCode
}

// all reads every page and returns their items and the largest number of items in one page.
func all[Page, Item any](ctx context.Context, pager *runtime.Pager[Page], items func(Page) []Item) ([]Item, int) {
	var found []Item
	largest := 0
	for pager.More() {
		page := items(must(pager.NextPage(ctx)))
		largest = max(largest, len(page))
		found = append(found, page...)
	}
	return found, largest
}

func init() {
	scenario("administration", "a queue is created, shown, updated and deleted", func(s *stage) {
		client, name, target := s.administration(), fresh("queue"), s.queue(admin.QueueProperties{})
		wanted := admin.QueueProperties{
			LockDuration:                        ptr("PT45S"),
			MaxSizeInMegabytes:                  ptr(int32(4096)),
			RequiresDuplicateDetection:          ptr(true),
			RequiresSession:                     ptr(true),
			DefaultMessageTimeToLive:            ptr("PT6H"),
			DeadLetteringOnMessageExpiration:    ptr(true),
			DuplicateDetectionHistoryTimeWindow: ptr("PT4H"),
			MaxDeliveryCount:                    ptr(int32(100)),
			EnableBatchedOperations:             ptr(false),
			Status:                              ptr(admin.EntityStatusSendDisabled),
			AutoDeleteOnIdle:                    ptr("PT10M"),
			EnablePartitioning:                  ptr(false),
			ForwardDeadLetteredMessagesTo:       ptr(target),
			UserMetadata:                        ptr("some <metadata> & more"),
			AuthorizationRules: []admin.AuthorizationRule{{
				KeyName: ptr("reader"), AccessRights: []admin.AccessRight{admin.AccessRightListen},
				PrimaryKey: ptr("primary"), SecondaryKey: ptr("secondary"),
			}},
		}
		created := must(client.CreateQueue(s, name, &admin.CreateQueueOptions{Properties: &wanted}))
		equal(name, created.QueueName)
		shown := must(client.GetQueue(s, name, nil)).QueueProperties
		equal(created.QueueProperties, shown)
		contains(*shown.ForwardDeadLetteredMessagesTo, target)
		comparable := shown
		comparable.ForwardDeadLetteredMessagesTo, comparable.MaxMessageSizeInKilobytes = ptr(target), nil
		equal(wanted, comparable)

		shown.LockDuration, shown.Status = ptr("PT1M"), ptr(admin.EntityStatusActive)
		updated := must(client.UpdateQueue(s, name, shown, nil))
		equal("PT1M", *updated.LockDuration)
		equal(admin.EntityStatusActive, *must(client.GetQueue(s, name, nil)).Status)
		must(client.DeleteQueue(s, name, nil))
		if missing := must(client.GetQueue(s, name, nil)); missing != nil {
			fail("a deleted queue is shown")
		}
	})

	scenario("administration", "a topic and its subscriptions are created, shown, updated and deleted", func(s *stage) {
		client, topic := s.administration(), fresh("topic")
		created := must(client.CreateTopic(s, topic, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
			MaxSizeInMegabytes:                  ptr(int32(2048)),
			RequiresDuplicateDetection:          ptr(true),
			DefaultMessageTimeToLive:            ptr("PT3M"),
			DuplicateDetectionHistoryTimeWindow: ptr("PT4M"),
			EnableBatchedOperations:             ptr(true),
			AutoDeleteOnIdle:                    ptr("PT7M"),
			SupportOrdering:                     ptr(true),
			UserMetadata:                        ptr("topic"),
		}}))
		equal(created.TopicProperties, must(client.GetTopic(s, topic, nil)).TopicProperties)
		equal("PT4M", *created.DuplicateDetectionHistoryTimeWindow)
		changed := created.TopicProperties
		changed.UserMetadata = ptr("changed")
		equal("changed", *must(client.UpdateTopic(s, topic, changed, nil)).UserMetadata)

		wanted := admin.SubscriptionProperties{
			LockDuration:                                    ptr("PT3M"),
			RequiresSession:                                 ptr(false),
			DefaultMessageTimeToLive:                        ptr("PT1H"),
			DeadLetteringOnMessageExpiration:                ptr(true),
			EnableDeadLetteringOnFilterEvaluationExceptions: ptr(false),
			MaxDeliveryCount:                                ptr(int32(11)),
			Status:                                          ptr(admin.EntityStatusActive),
			AutoDeleteOnIdle:                                ptr("PT5M"),
			EnableBatchedOperations:                         ptr(true),
			UserMetadata:                                    ptr("subscription"),
		}
		subscription := must(client.CreateSubscription(s, topic, "sub", &admin.CreateSubscriptionOptions{Properties: &wanted}))
		shown := must(client.GetSubscription(s, topic, "sub", nil))
		equal(subscription.SubscriptionProperties, shown.SubscriptionProperties)
		comparable := shown.SubscriptionProperties
		comparable.DefaultRule = nil
		equal(wanted, comparable)
		wanted.MaxDeliveryCount = ptr(int32(12))
		equal(int32(12), *must(client.UpdateSubscription(s, topic, "sub", wanted, nil)).MaxDeliveryCount)
		must(client.DeleteSubscription(s, topic, "sub", nil))
		equal(true, must(client.GetSubscription(s, topic, "sub", nil)) == nil)
		must(client.DeleteTopic(s, topic, nil))
		equal(true, must(client.GetTopic(s, topic, nil)) == nil)
	})

	scenario("administration", "rules of every kind are created, shown, updated, listed and deleted", func(s *stage) {
		client, topic := s.administration(), s.topic(admin.TopicProperties{}, "sub")
		now := time.Now().UTC().Truncate(time.Millisecond)
		rules := []admin.CreateRuleOptions{
			{Name: ptr("true"), Filter: &admin.TrueFilter{}},
			{Name: ptr("false"), Filter: &admin.FalseFilter{}},
			{
				Name: ptr("sql"),
				Filter: &admin.SQLFilter{Expression: "a = @a AND b < @b", Parameters: map[string]any{
					"@a": "text", "@b": int64(7), "@c": 1.5, "@d": true, "@e": now,
				}},
				Action: &admin.SQLAction{Expression: "SET c = @c", Parameters: map[string]any{"@c": "set"}},
			},
			{Name: ptr("correlation"), Filter: &admin.CorrelationFilter{
				ContentType: ptr("type"), CorrelationID: ptr("correlation"), MessageID: ptr("id"), ReplyTo: ptr("reply"),
				ReplyToSessionID: ptr("reply session"), SessionID: ptr("session"), Subject: ptr("subject"), To: ptr("to"),
				ApplicationProperties: map[string]any{"a": "text", "b": int64(7), "c": 1.5, "d": true, "e": now},
			}},
		}
		for _, rule := range rules {
			created := must(client.CreateRule(s, topic, "sub", &rule))
			equal(*rule.Name, created.Name)
			equal(rule.Filter, created.Filter)
			equal(rule.Action, created.Action)
			equal(created.RuleProperties, must(client.GetRule(s, topic, "sub", *rule.Name, nil)).RuleProperties)
		}
		found, largest := all(s, client.NewListRulesPager(topic, "sub", &admin.ListRulesOptions{MaxPageSize: 2}),
			func(page admin.ListRulesResponse) []admin.RuleProperties { return page.Rules })
		equal(len(rules)+1, len(found))
		equal(2, largest)
		changed := admin.RuleProperties{Name: "sql", Filter: &admin.SQLFilter{Expression: "1=1"}}
		equal("1=1", must(client.UpdateRule(s, topic, "sub", changed)).Filter.(*admin.SQLFilter).Expression)
		must(client.DeleteRule(s, topic, "sub", "sql", nil))
		equal(true, must(client.GetRule(s, topic, "sub", "sql", nil)) == nil)
	})

	scenario("administration", "runtime properties count messages and filters", func(s *stage) {
		client, administration := s.client(), s.administration()
		queue, topic := s.queue(admin.QueueProperties{}), s.topic(admin.TopicProperties{}, "sub")
		before := time.Now().Add(-5 * time.Second)
		for _, moment := range []time.Time{
			must(administration.GetQueueRuntimeProperties(s, queue, nil)).AccessedAt,
			must(administration.GetTopicRuntimeProperties(s, s.topic(admin.TopicProperties{}), nil)).AccessedAt,
		} {
			truth(moment.IsZero(), "it was used before")
		}
		s.send(client, queue, "one", "two", "three")
		receiver := s.receiver(client, queue)
		check(receiver.DeadLetterMessage(s, s.take(receiver, 1)[0], nil))
		must(s.sender(client, queue).ScheduleMessages(s, []*azservicebus.Message{text("later")}, time.Now().Add(time.Hour), nil))
		shown := must(administration.GetQueueRuntimeProperties(s, queue, nil))
		equal([]int32{2, 1, 1, 0, 0}, []int32{
			shown.ActiveMessageCount, shown.DeadLetterMessageCount, shown.ScheduledMessageCount,
			shown.TransferMessageCount, shown.TransferDeadLetterMessageCount,
		})
		equal(int64(4), shown.TotalMessageCount)
		truth(shown.SizeInBytes > 0, "no bytes")
		for _, moment := range []time.Time{shown.CreatedAt, shown.UpdatedAt, shown.AccessedAt} {
			truth(moment.After(before), "it is older than the scenario")
		}
		s.send(client, topic, "copy")
		must(administration.CreateRule(s, topic, "sub", &admin.CreateRuleOptions{
			Name: ptr("correlation"), Filter: &admin.CorrelationFilter{CorrelationID: ptr("c")},
		}))
		ofTopic := must(administration.GetTopicRuntimeProperties(s, topic, nil))
		equal([]int32{1, 1, 1, 0}, []int32{
			ofTopic.SubscriptionCount, ofTopic.SQLFilterCount, ofTopic.CorrelationFilterCount, ofTopic.ScheduledMessageCount,
		})
		equal(int32(1), must(administration.GetSubscriptionRuntimeProperties(s, topic, "sub", nil)).ActiveMessageCount)
	})

	scenario("administration", "lists come in pages and hold everything once", func(s *stage) {
		client, prefix := s.administration(), fresh("listed")
		topic := s.topic(admin.TopicProperties{})
		wanted := []string{}
		for number := range 5 {
			name := fmt.Sprintf("%s-%d", prefix, number)
			wanted = append(wanted, name)
			must(client.CreateQueue(s, name, nil))
			must(client.CreateTopic(s, name+"-topic", nil))
			must(client.CreateSubscription(s, topic, name, nil))
		}
		ours := func(names []string) []string {
			names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
			slices.Sort(names)
			return names
		}
		queues, largest := all(s, client.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}),
			func(page admin.ListQueuesResponse) []string {
				names := []string{}
				for _, item := range page.Queues {
					names = append(names, item.QueueName)
				}
				return names
			})
		equal(wanted, ours(queues))
		equal(2, largest)
		counted, _ := all(s, client.NewListQueuesRuntimePropertiesPager(nil),
			func(page admin.ListQueuesRuntimePropertiesResponse) []string {
				names := []string{}
				for _, item := range page.QueueRuntimeProperties {
					names = append(names, item.QueueName)
				}
				return names
			})
		equal(wanted, ours(counted))
		topics, _ := all(s, client.NewListTopicsPager(&admin.ListTopicsOptions{MaxPageSize: 3}),
			func(page admin.ListTopicsResponse) []string {
				names := []string{}
				for _, item := range page.Topics {
					names = append(names, strings.TrimSuffix(item.TopicName, "-topic"))
				}
				return names
			})
		equal(wanted, ours(topics))
		subscriptions, _ := all(s, client.NewListSubscriptionsPager(topic, &admin.ListSubscriptionsOptions{MaxPageSize: 2}),
			func(page admin.ListSubscriptionsResponse) []string {
				names := []string{}
				for _, item := range page.Subscriptions {
					equal(topic, item.TopicName)
					names = append(names, item.SubscriptionName)
				}
				return names
			})
		equal(wanted, subscriptions)
	})

	for _, version := range []string{"2017-04", "2021-05", "2024-05"} {
		apiVersions[version] = func(s *stage) {
			client, name := s.administrationAt(version), fresh("queue")
			must(client.CreateQueue(s, name, &admin.CreateQueueOptions{
				Properties: &admin.QueueProperties{MaxDeliveryCount: ptr(int32(3))},
			}))
			shown := must(client.GetQueue(s, name, nil))
			equal(int32(3), *shown.MaxDeliveryCount)
			equal(int32(3), *must(client.UpdateQueue(s, name, shown.QueueProperties, nil)).MaxDeliveryCount)
			must(client.CreateTopic(s, name+"-topic", nil))
			must(client.CreateSubscription(s, name+"-topic", "sub", nil))
			must(client.GetSubscriptionRuntimeProperties(s, name+"-topic", "sub", nil))
		}
	}
	scenario("administration", "api version 2017-04 is served", apiVersions["2017-04"])
	scenario("administration", "api version 2021-05 is served", apiVersions["2021-05"])
	scenario("administration", "api version 2024-05 is served", apiVersions["2024-05"])

	scenario("administration", "the namespace says what it is", func(s *stage) {
		shown := must(s.administration().GetNamespaceProperties(s, nil))
		truth(shown.Name != "" && shown.SKU != "", fmt.Sprintf("it has no name or tier: %+v", shown))
		truth(!shown.CreatedTime.IsZero(), "it has no age")
	})

	scenario("errors", "administration is refused with the status of the service", func(s *stage) {
		client, queue := s.administration(), s.queue(admin.QueueProperties{})
		_, err := client.CreateQueue(s, queue, nil)
		equal(http.StatusConflict, status(err))
		_, err = client.DeleteQueue(s, fresh("nothing"), nil)
		equal(http.StatusNotFound, status(err))
		_, err = client.UpdateQueue(s, fresh("nothing"), admin.QueueProperties{}, nil)
		equal(http.StatusNotFound, status(err))
		_, err = client.CreateQueue(s, fresh("queue"), &admin.CreateQueueOptions{
			Properties: &admin.QueueProperties{LockDuration: ptr("PT6M")},
		})
		equal(http.StatusBadRequest, status(err))
		forged := strings.Replace(s.variable("TLS"), "SharedAccessKey=", "SharedAccessKey=x", 1)
		other := must(admin.NewClientFromConnectionString(forged, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
			Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: s.trusted()}},
		}}))
		_, err = other.GetQueue(s, queue, nil)
		equal(http.StatusUnauthorized, status(err))
	})
}

var apiVersions = map[string]func(*stage){}
