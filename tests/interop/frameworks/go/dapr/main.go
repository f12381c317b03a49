// Dapr's components for Service Bus, as its runtime calls them: publish and subscribe with topics and queues, and a binding.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/dapr/components-contrib/bindings"
	binding "github.com/dapr/components-contrib/bindings/azure/servicebusqueues"
	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/topics"
	"github.com/dapr/kit/logger"

	. "twinbus/scenarios"
)

var scenario = Add

func base(properties map[string]string) metadata.Base {
	properties["connectionString"] = Setting("TWINBUS_CONNECTION")
	return metadata.Base{Name: "servicebus", Properties: properties}
}

func quiet() logger.Logger {
	log := logger.NewLogger("dapr")
	log.SetOutputLevel(logger.FatalLevel)
	return log
}

func started(ctx context.Context, component pubsub.PubSub, properties map[string]string) pubsub.PubSub {
	Check(component.Init(ctx, pubsub.Metadata{Base: base(properties)}))
	return component
}

func withTopics(ctx context.Context, consumer string) pubsub.PubSub {
	return started(ctx, topics.NewAzureServiceBusTopics(quiet()), map[string]string{"consumerID": consumer})
}

func withQueues(ctx context.Context) pubsub.PubSub {
	return started(ctx, queues.NewAzureServiceBusQueues(quiet()), map[string]string{"maxDeliveryCount": "3"})
}

func publish(ctx context.Context, component pubsub.PubSub, topic, text string, about map[string]string) {
	Check(component.Publish(ctx, &pubsub.PublishRequest{Topic: topic, Data: []byte(text), Metadata: about}))
}

// subscribe returns what the handler got; it fails as often as it is told.
func subscribe(
	ctx context.Context, component pubsub.PubSub, topic string, about map[string]string, failures int,
) <-chan *pubsub.NewMessage {
	arrived := make(chan *pubsub.NewMessage, 100)
	Check(component.Subscribe(ctx, pubsub.SubscribeRequest{Topic: topic, Metadata: about},
		func(_ context.Context, message *pubsub.NewMessage) error {
			if failures > 0 {
				failures--
				return errors.New("no stock")
			}
			arrived <- message
			return nil
		}))
	return arrived
}

func main() {
	scenario("topics and rules", "a topic and a subscription are created, and a message passes", func(ctx context.Context) {
		component := withTopics(ctx, "shop")
		arrived := subscribe(ctx, component, "dapr-topic", nil, 0)
		publish(ctx, component, "dapr-topic", "hello", map[string]string{"CorrelationId": "c1", "Label": "greeting"})
		message := Next(ctx, arrived)
		Same("hello", string(message.Data))
		Same("c1", message.Metadata["metadata.CorrelationId"])
		Same("greeting", message.Metadata["metadata.Label"])
	})
	scenario("topics and rules", "every consumer has a subscription of its own", func(ctx context.Context) {
		first, second := withTopics(ctx, "first"), withTopics(ctx, "second")
		one, two := subscribe(ctx, first, "dapr-news", nil, 0), subscribe(ctx, second, "dapr-news", nil, 0)
		publish(ctx, first, "dapr-news", "news", nil)
		Same("news", string(Next(ctx, one).Data))
		Same("news", string(Next(ctx, two).Data))
	})
	scenario("batch", "messages are published and received in bulk", func(ctx context.Context) {
		component := withTopics(ctx, "bulk")
		arrived := make(chan string, 100)
		Check(component.(pubsub.BulkSubscriber).BulkSubscribe(ctx, pubsub.SubscribeRequest{Topic: "dapr-bulk"},
			func(_ context.Context, messages *pubsub.BulkMessage) ([]pubsub.BulkSubscribeResponseEntry, error) {
				statuses := []pubsub.BulkSubscribeResponseEntry{}
				for _, entry := range messages.Entries {
					arrived <- string(entry.Event)
					statuses = append(statuses, pubsub.BulkSubscribeResponseEntry{EntryId: entry.EntryId})
				}
				return statuses, nil
			}))
		request := &pubsub.BulkPublishRequest{Topic: "dapr-bulk"}
		for number := range 20 {
			request.Entries = append(request.Entries,
				pubsub.BulkMessageEntry{EntryId: fmt.Sprint(number), Event: fmt.Appendf(nil, "m%02d", number)})
		}
		answer, err := component.(pubsub.BulkPublisher).BulkPublish(ctx, request)
		Check(err)
		Same(0, len(answer.FailedEntries))
		got := []string{}
		for range 20 {
			got = append(got, Next(ctx, arrived))
		}
		sort.Strings(got)
		Same("m00", got[0])
		Same("m19", got[19])
	})
	scenario("send", "a queue is created, and a message passes", func(ctx context.Context) {
		component := withQueues(ctx)
		arrived := subscribe(ctx, component, "dapr-queue", nil, 0)
		publish(ctx, component, "dapr-queue", "hello", nil)
		Same("hello", string(Next(ctx, arrived).Data))
	})
	scenario("settlement", "a message whose handler fails comes again", func(ctx context.Context) {
		component := withQueues(ctx)
		arrived := subscribe(ctx, component, "dapr-failing", nil, 2)
		publish(ctx, component, "dapr-failing", "third time lucky", nil)
		message := Next(ctx, arrived)
		Same("third time lucky", string(message.Data))
		Same("3", message.Metadata["metadata.DeliveryCount"])
	})
	scenario("sessions", "the messages of a session come in order", func(ctx context.Context) {
		component := withTopics(ctx, "sessions")
		about := map[string]string{"requireSessions": "true", "sessionIdleTimeoutInSec": "1"}
		arrived := subscribe(ctx, component, "dapr-sessions", about, 0)
		for number := range 3 {
			publish(ctx, component, "dapr-sessions", fmt.Sprint(number), map[string]string{"SessionId": "blue"})
		}
		for number := range 3 {
			message := Next(ctx, arrived)
			Same(fmt.Sprint(number), string(message.Data))
			Same("blue", message.Metadata["metadata.SessionId"])
		}
	})
	scenario("scheduling", "a message is published for later", func(ctx context.Context) {
		component := withQueues(ctx)
		arrived := subscribe(ctx, component, "dapr-later", nil, 0)
		due := time.Now().Add(time.Second).Truncate(time.Second).Add(time.Second)
		about := map[string]string{"ScheduledEnqueueTimeUtc": due.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		publish(ctx, component, "dapr-later", "later", about)
		Same("later", string(Next(ctx, arrived).Data))
		if time.Now().Before(due) {
			panic("it came too early")
		}
	})
	scenario("receive", "a binding writes to a queue and reads from it", func(ctx context.Context) {
		queue := binding.NewAzureServiceBusQueues(quiet())
		Check(queue.Init(ctx, bindings.Metadata{Base: base(map[string]string{"queueName": "dapr-binding"})}))
		_, err := queue.Invoke(ctx, &bindings.InvokeRequest{
			Data: []byte("order"), Operation: bindings.CreateOperation, Metadata: map[string]string{"id": "m1"},
		})
		Check(err)
		arrived := make(chan *bindings.ReadResponse, 10)
		Check(queue.Read(ctx, func(_ context.Context, message *bindings.ReadResponse) ([]byte, error) {
			arrived <- message
			return nil, nil
		}))
		message := Next(ctx, arrived)
		Same("order", string(message.Data))
		Same("m1", message.Metadata["id"])
	})
	PlayAll()
}
