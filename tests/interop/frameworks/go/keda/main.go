// KEDA's scaler for Service Bus, as its operator calls it.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	v2 "k8s.io/api/autoscaling/v2"

	. "twinbus/scenarios"
)

var scenario = Add

// measured is what the scaler tells Kubernetes: how many messages wait, and whether that is reason to run anything at all.
func measured(ctx context.Context, trigger map[string]string) (float64, bool) {
	scaler, err := scalers.NewAzureServiceBusScaler(&scalersconfig.ScalerConfig{
		TriggerMetadata:   trigger,
		AuthParams:        map[string]string{"connection": Setting("TWINBUS_CONNECTION")},
		GlobalHTTPTimeout: 10 * time.Second,
		MetricType:        v2.AverageValueMetricType,
	})
	Check(err)
	defer scaler.Close(ctx)
	values, isActive, err := scaler.GetMetricsAndActivity(ctx, "messages")
	Check(err)
	Same(1, len(values))
	return values[0].Value.AsApproximateFloat64(), isActive
}

func expect(ctx context.Context, trigger map[string]string, count float64, isActive bool) {
	gotCount, gotActive := measured(ctx, trigger)
	Same(count, gotCount)
	Same(isActive, gotActive)
}

func main() {
	scenario("administration", "a queue is measured by its active messages", func(ctx context.Context) {
		expect(ctx, map[string]string{"queueName": "keda-orders"}, 3, true)
		expect(ctx, map[string]string{"queueName": "keda-empty"}, 0, false)
		expect(ctx, map[string]string{"queueName": "keda-orders", "activationMessageCount": "3"}, 3, false)
	})
	scenario("topics and rules", "a subscription is measured by its active messages", func(ctx context.Context) {
		expect(ctx, map[string]string{"topicName": "keda-news", "subscriptionName": "all"}, 2, true)
	})
	scenario("administration", "queues and subscriptions are found by a regular expression", func(ctx context.Context) {
		queues := map[string]string{"queueName": "keda-.*", "useRegex": "true"}
		expect(ctx, queues, 4, true)
		queues["operation"] = "max"
		expect(ctx, queues, 3, true)
		subscriptions := map[string]string{"topicName": "keda-news", "subscriptionName": "a.*", "useRegex": "true"}
		expect(ctx, subscriptions, 4, true)
	})
	scenario("errors", "a queue that does not exist is an error", func(ctx context.Context) {
		defer func() {
			if fault := fmt.Sprint(recover()); !strings.Contains(fault, "keda-unknown doesn't exist") {
				panic("it said: " + fault)
			}
		}()
		measured(ctx, map[string]string{"queueName": "keda-unknown"})
	})
	PlayAll()
}
